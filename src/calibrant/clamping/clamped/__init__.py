"""What a fit leaves: the clamped model, the record of its fit, and the file that holds both."""
