"""What image recipes share: data, losses, networks with fixed weights, reports."""
