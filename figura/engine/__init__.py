"""What training and evaluation share: batches, networks, losses, steps, precision, weights."""
