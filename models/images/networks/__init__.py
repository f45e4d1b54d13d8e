"""Networks with fixed weights that losses and scores use, and the files of these weights."""
