"""The kinds of datasets: each module has `PREPARATION`, a class, and `add`, which reads or draws the records.

`prepare` loads the module that the `kind` of an entry of `data/params.yaml` names, and no other. So an edit of a reader
makes the datasets of its kind stale.
"""
