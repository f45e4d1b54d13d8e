"""The files that data comes in, and what their keypoints mean."""
