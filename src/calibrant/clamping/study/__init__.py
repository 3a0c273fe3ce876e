"""Judging the method: its parts against each other, and fits repeated over γ and starts."""
