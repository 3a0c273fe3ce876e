"""Methods with a formula whose numbers are fitted: temperatures, slopes, biases, sigmoids, stretched gaps."""
