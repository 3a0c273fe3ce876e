"""Methods that look at the features behind a prediction beside its logits."""
