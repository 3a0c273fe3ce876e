"""A clamped network beside the network as it is and temperature scaling: numbers, words, renderings."""
