"""From fields to people and boxes, and pictures of both."""
