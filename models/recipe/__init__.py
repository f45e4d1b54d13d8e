"""From the text of a params file to a checked `Recipe`; `engine/build.py` makes live objects of it."""
