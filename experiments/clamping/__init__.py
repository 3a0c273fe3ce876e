"""Neural Clamping on trained networks: records and page."""
