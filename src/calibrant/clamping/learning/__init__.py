"""Learning δ and the head for one strength: the objective, its passes over the rows, two solvers."""
