"""Singh, Bay, Sengupta and Mirabile, "On the Dark Side of Calibration" (2021): Table 4, ConfidNet."""
