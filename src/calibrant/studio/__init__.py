"""The local web studio: look at predictions in a browser, calibrate them, and take the result home."""
