"""File formats of the raw and prepared data, and skeletons."""
