"""A page on this machine: browse data, watch and compare runs, try trained networks."""
