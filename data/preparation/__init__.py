"""From raw data to prepared datasets: what cannot be used is dropped and listed."""
