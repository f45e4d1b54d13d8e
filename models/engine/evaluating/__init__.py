"""What trained networks give: dumps, their figures, predictions."""
