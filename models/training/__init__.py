"""What only training runs: the loop, its log, resume points, checkpoints, rollback, checks before the first step."""
