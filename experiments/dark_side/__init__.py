"""On the Dark Side of Calibration: its hypothetical classifiers, its assumption, and its equation 9."""
