"""The pose network, its backbones and heads; the loss of pictures that a trained one reads."""
