"""Commands of continuous integration: the reproduction gate and the report on a change."""
