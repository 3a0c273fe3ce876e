"""Thirteen ways to train ResNet-18 for 40 epochs: records and page."""
