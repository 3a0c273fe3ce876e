"""Mathematics that knows nothing of calibration."""
