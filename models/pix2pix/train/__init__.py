"""Generator and discriminator of pix2pix."""
