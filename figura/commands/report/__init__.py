"""One page on what was trained and how well it did, that opens anywhere."""
