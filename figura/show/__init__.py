"""Show examples as pictures, as passed to the networks of a recipe."""
