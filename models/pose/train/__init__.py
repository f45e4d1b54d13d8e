"""Encoders, losses and scenes of pose estimation."""
