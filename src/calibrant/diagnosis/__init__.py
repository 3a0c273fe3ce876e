"""Trained networks compared over losses and seeds: what calibration can change, and how well errors are separated.

References: Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of
Overconfidence; Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, arXiv:2106.09385.
"""

from calibrant.diagnosis import curves, evaluated, over_seeds, run_table, runs, shift, summaries
from calibrant.diagnosis.curves import *  # noqa: F403
from calibrant.diagnosis.diagnosis import CandidateSummary, Diagnosis, diagnose
from calibrant.diagnosis.evaluated import *  # noqa: F403
from calibrant.diagnosis.over_seeds import *  # noqa: F403
from calibrant.diagnosis.run_table import *  # noqa: F403
from calibrant.diagnosis.runs import *  # noqa: F403
from calibrant.diagnosis.shift import *  # noqa: F403
from calibrant.diagnosis.summaries import *  # noqa: F403

__all__ = ["CandidateSummary", "Diagnosis", "diagnose"]
__all__ += curves.__all__
__all__ += evaluated.__all__
__all__ += over_seeds.__all__
__all__ += run_table.__all__
__all__ += runs.__all__
__all__ += shift.__all__
__all__ += summaries.__all__
