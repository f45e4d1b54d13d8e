"""Variational U-Net: people from a pose and an appearance (Esser, Sutter and Ommer, CVPR 2018)."""
