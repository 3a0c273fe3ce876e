"""Towards Unbiased Calibration using Meta-Regularization (Wang & Golebiowski 2024): Table 1 on CIFAR-100."""
