"""States of metrics, which add up, and statistics, which gather them from samples.

The state of two sets of samples together is the sum of their states. Batches, files, machines and the bootstrap rest on
this law. Fields may have leading dimensions (one state per resample); metrics read the last ones. Metrics that name the
same statistic share its state.

A sample of weight w counts as w samples in every sum. Where a metric depends on the number of samples itself (by noise
that it subtracts, or a width that it chooses), that is the effective number (Kish), ``(Σ w)² / Σ w²``: as many samples
of equal weight have a mean of the same variance. So only the ratios of the weights matter. States therefore add up the
squared weights too; without weights these are the counts.
"""

from calibrant.metrics.states.base import *  # noqa: F403
from calibrant.metrics.states.bins import *  # noqa: F403
