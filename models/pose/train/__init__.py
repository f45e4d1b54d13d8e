"""Networks, heads, losses, encoders and scenes of pose estimation."""
