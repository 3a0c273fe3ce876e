"""Labelled inputs as a person has them, read in batches: tensors, a data set, a loader, a stream."""
