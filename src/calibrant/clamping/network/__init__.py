"""The frozen network: what it takes and gives, how it is shown inputs, and its first layer."""
