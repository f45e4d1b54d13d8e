"""The systems that are trained, one folder each, and two shared folders: `images` and `people`."""
