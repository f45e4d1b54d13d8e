"""Data: its formats, its preparation, and the people that figura draws. `params.yaml` says which datasets are prepared."""
