"""The DAG and what DVC knows of it: dvc.yaml, dvc.lock, each stage's code, why it runs, revisions in the cache."""
