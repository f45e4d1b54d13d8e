"""Examples as pictures: what the networks of a recipe get."""
