"""The training loop, its log, resume points, checkpoints, rollback, and the checks before the first step."""
