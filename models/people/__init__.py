"""What recipes with people share."""
