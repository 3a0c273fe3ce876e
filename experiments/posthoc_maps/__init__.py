"""Table 2 of Neural Clamping, ResNet-110: the paper's baselines as it fits them, and to their optima."""
