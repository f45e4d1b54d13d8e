"""Decode fields into people and boxes, and draw both."""
