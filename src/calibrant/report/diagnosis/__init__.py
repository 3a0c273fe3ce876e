"""Ways to train side by side: the two-sided verdict, and the tables behind it."""
