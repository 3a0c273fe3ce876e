"""Studies on real data: the papers' tables and figures made again, from records that are kept beside the code."""
