"""The rows that δ is fitted on: those it can be added to, the same at every pass."""
