"""Flow matching: people from a pose and an appearance, by a rectified flow in pixels (Liu et al., ICLR 2023)."""
