"""Draw a recipe before it runs: `figura describe RECIPE`."""
