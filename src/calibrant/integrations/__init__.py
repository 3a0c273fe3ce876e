"""Doors to the frameworks people use: one module each, imported only when asked for."""
