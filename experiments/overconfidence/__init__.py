"""Wang et al. (2021): regularised losses, and what a map fitted afterwards makes of them."""
