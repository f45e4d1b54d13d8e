"""The injector library: what a recipe names without a dot under `injectors`."""
