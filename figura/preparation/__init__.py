"""Raw data -> prepared datasets: unusable records are dropped and listed."""
