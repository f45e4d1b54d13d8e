"""Commands beside the DAG: no stage depends on them."""
