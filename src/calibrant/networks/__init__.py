"""A network that is only asked: where it is, standing still, its weights, its features, its logits."""
