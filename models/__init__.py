"""The shared package of all stages: a folder for each purpose, so that a stage depends on no more than it loads."""
