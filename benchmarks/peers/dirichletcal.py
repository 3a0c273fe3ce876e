"""dirichletcal: Dirichlet calibration by its authors, with the penalty as their paper prints it."""

import os

import numpy as np

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")  # one thread
from dirichletcal.calib.fulldirichlet import FullDirichletCalibrator

from .rows import Fitted, Rows

# As a search would choose: weaker ones follow the noise of 5,000 rows of a hundred classes.
REG_LAMBDA, REG_MU = 1e4, 1e4


def fit(rows: Rows) -> FullDirichletCalibrator:
    """Its own choice of optimiser: L-BFGS-B above 36 classes."""
    # Its defaults leave out the factors 1/(k (k - 1)) and 1/k and penalise the matrix less its last row.
    fitted = FullDirichletCalibrator(reg_lambda=REG_LAMBDA, reg_mu=REG_MU, reg_norm=True, ref_row=False)
    return fitted.fit(rows.probs_array.astype(np.float64), rows.labels_array)


def dirichlet_from_probs(rows: Rows) -> Fitted:
    """As above, in the form of all fits."""
    fitted = fit(rows)
    return lambda others: np.asarray(fitted.predict_proba(others.probs_array.astype(np.float64)))


FITS = {"dirichlet_odir from probs": dirichlet_from_probs}
