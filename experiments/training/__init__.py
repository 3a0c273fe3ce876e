"""Five losses on two networks: records, page, and the weights of one network."""
