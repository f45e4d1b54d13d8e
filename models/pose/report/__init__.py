"""COCO metrics and plots of people and boxes."""
