"""A recipe as text and as objects: its form, its checks, what its types name."""
