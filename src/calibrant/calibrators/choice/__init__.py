"""Which of several methods suits the data: cross-validated ranking, and the method that takes its winner."""
