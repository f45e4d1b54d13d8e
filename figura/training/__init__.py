"""The training loop, its log, resume points, checkpoints, and the checks before the first step."""
