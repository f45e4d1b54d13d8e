"""From a recipe to trained networks: batches, steps, the loop, records, states to go on from."""
