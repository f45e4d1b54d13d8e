"""Run trained networks over `evaluate.data` and write a dump."""
