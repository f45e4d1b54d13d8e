"""`figura translate`: a configuration or a command line of another trainer becomes a recipe."""
