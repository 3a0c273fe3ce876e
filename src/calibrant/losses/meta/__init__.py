"""Losses with parameters of their own, which held-out rows tune while the network trains."""
