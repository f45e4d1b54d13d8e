"""Networks and data of super-resolution."""
