"""What the board did meanwhile: signals, the sampler and its sources."""
