"""Speed beside the peers: one file a question. See RESULTS.md."""
