"""Methods that bend the confidence by a smooth or rising curve."""
