"""The shared package: one room for each concern; see README.md for the map."""
