"""The injector library: types without a dot under `injectors`."""
