"""Meta-regularisation: the parameters of a loss, tuned on held-out rows while the network trains."""
