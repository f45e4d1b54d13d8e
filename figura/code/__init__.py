"""The code of a stage: the files that it imports, their hashes, and the manifests that DVC depends on."""
