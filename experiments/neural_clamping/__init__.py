"""Neural Clamping (Tang et al. 2024): its ablation, sweeps and appendices, from one trained ResNet-110."""
