"""Data: file formats, preparation, and the synthetic people. `params.yaml` lists the datasets to prepare."""
