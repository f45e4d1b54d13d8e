"""Pictures of histories, runs and sweeps."""
