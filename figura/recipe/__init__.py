"""From the text of a params file to a checked `Recipe`; `engine/build.py` constructs the objects."""
