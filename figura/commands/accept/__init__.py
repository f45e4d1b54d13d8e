"""`figura accept`: record that a change of code has no effect, instead of running stages again."""
