"""What adds names to the state: the engine's injectors."""
