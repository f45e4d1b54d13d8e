"""The stages of dvc.yaml, and how they are launched."""
