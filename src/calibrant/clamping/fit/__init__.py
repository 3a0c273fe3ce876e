"""One fit from the first look at the rows to its end: γ and λ chosen, and all of it resumable."""
