"""Methods that give all rows of a bin one value."""
