"""A recipe as a picture: its data flow, shapes, costs."""
