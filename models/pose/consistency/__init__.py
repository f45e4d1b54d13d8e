"""Whether pictures of people show the poses that were asked for, by a trained pose network."""
