"""Mathematics that is independent of calibration."""
