"""Draw a recipe before it runs: `python -m tools.describe RECIPE`."""
