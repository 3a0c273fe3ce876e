"""The labelled rows a network is calibrated on, whatever holds them: tensors, a dataset, a loader, a stream."""
