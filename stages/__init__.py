"""The stages of the pipeline, one page each; `dvc.yaml` says how they follow each other."""
