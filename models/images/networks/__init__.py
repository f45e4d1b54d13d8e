"""Networks with fixed weights, used by losses and scores, and their weight files."""
