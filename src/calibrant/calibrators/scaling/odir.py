"""Matrix scaling and Dirichlet calibration with off-diagonal and intercept regularisation (ODIR)."""

from dataclasses import dataclass
from typing import ClassVar, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.folds import deal_folds
from calibrant.calibrators.scaling.affine import check_every_class_seen, coldness_of, log_probs_at
from calibrant.calibrators.scaling.odir_search import OdirSearch, Strengths, fit_odir, search_strengths
from calibrant.checks import check_at_least, check_known, check_positive
from calibrant.maps import Affine, Mixture
from calibrant.numerics.softmax_regression import AffineFit
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["DirichletODIR", "MatrixScalingODIR"]

_KULL = Paper(
    "Kull et al.",
    2019,
    "Beyond Temperature Scaling: Obtaining Well-Calibrated Multiclass Probabilities with Dirichlet Calibration",
    "arXiv:1910.12656",
    "Section 4.1",
)


@final
@dataclass(frozen=True)
class MatrixScalingODIR(Calibrator):
    """Matrix scaling of the logits, with penalties on the off-diagonal of the matrix and on the shifts.

    The diagonal is free, so that at large strengths the method is a slope for each class, and at small ones matrix
    scaling. It all hangs on the strengths: with a hundred classes and 5,000 rows λ = 10³ can be better than a
    temperature and λ = 10² ruin the predictions. Left to be searched they cost a fit for each fold and value: a second
    at 10 classes, five at 100. Structured matrix scaling (sms) sets its strengths by a rule, penalises the diagonal,
    too, and is mostly both faster and better.

    Formula: q = softmax(W z + b); W, b minimise NLL + λ/(k(k − 1)) Σ_{j≠l} w_jl² + μ/k Σ b_j²
    Rows: about 50 of each class; a class without rows has no optimum, since the diagonal is not penalised.

    Args:
        strength: λ; None for searched.
        bias_strength: μ; None for searched.
        search: Which strengths are tried, by the log-loss of held-out rows. ``stepwise``: first μ without an
            off-diagonal, then λ, each from 10⁶ down by tens until the loss has risen twice, or by 2 %; then fitted on
            all rows. ``neural-clamping``: λ = μ, the seven powers of ten from 10⁴ to 10⁻². ``kull``: all pairs of λ in
            {1, ½, ¼} times, and μ in, the powers of ten from 10⁶ to 10⁻⁵ (10⁻² from 100 classes on), and then the mean
            of the probabilities that the fits of the folds give: an hour at 100 classes.
        folds: Parts that the rows are dealt into.
        seed: Of the deal.

    Raises:
        FitError: If a class has fewer rows than needed (one; two where strengths are searched), or all predictions
            are right.

    Example:
        >>> logits = torch.randn(2000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = MatrixScalingODIR(strength=1e6, bias_strength=1e6).fit(Predictions.from_logits(2 * logits, labels))
        >>> bool((fitted.weight - fitted.weight.diag().diag()).abs().max() < 1e-6)
        True
    """

    name: ClassVar[str] = "ms_odir"
    title: ClassVar[str] = "Matrix scaling with ODIR"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = _KULL
    # Classes are mixed.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    strength: float | None = None
    bias_strength: float | None = None
    search: OdirSearch = "stepwise"
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        _check_options(self)

    def learn(self, predictions: Predictions) -> Fitted:
        return _learn(self, predictions, of_log_probs=False)


@final
@dataclass(frozen=True)
class DirichletODIR(Calibrator):
    """Dirichlet calibration: a linear function of the log-probabilities, penalised as in ODIR.

    It is what turns one Dirichlet distribution for each class into probabilities. Beside :class:`MatrixScalingODIR`,
    which takes the logits as they are, it does not depend on a number added to all logits of a row; otherwise all that
    is said there holds here.

    Formula: q = softmax(W ln p + b), p = softmax(z); W, b minimise NLL + λ/(k(k − 1)) Σ_{j≠l} w_jl² + μ/k Σ b_j²
    Rows: about 50 of each class; a class without rows has no optimum, since the diagonal is not penalised.

    Args:
        strength: λ; None for searched.
        bias_strength: μ; None for searched.
        search: Which strengths are tried, as for :class:`MatrixScalingODIR`.
        folds: Parts that the rows are dealt into.
        seed: Of the deal.

    Raises:
        FitError: If a class has fewer rows than needed (one; two where strengths are searched), or all predictions
            are right.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8], [0.1, 0.9]])
        >>> rows = Predictions.from_probs(probs, [0, 1, 0, 1, 1])
        >>> fitted = DirichletODIR(strength=1.0, bias_strength=1.0).fit(rows)
        >>> fitted.of_log_probs
        True
    """

    name: ClassVar[str] = "dirichlet_odir"
    title: ClassVar[str] = "Dirichlet calibration with ODIR"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = _KULL
    # Classes are mixed.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    strength: float | None = None
    bias_strength: float | None = None
    search: OdirSearch = "stepwise"
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        _check_options(self)

    def learn(self, predictions: Predictions) -> Fitted:
        return _learn(self, predictions, of_log_probs=True)


def _check_options(method: MatrixScalingODIR | DirichletODIR) -> None:
    for name, strength in (("strength", method.strength), ("bias_strength", method.bias_strength)):
        if strength is not None:
            check_positive(strength, name)
    check_known(method.search, get_args(OdirSearch), "search")
    check_at_least(method.folds, 2, "folds")


def _learn(method: MatrixScalingODIR | DirichletODIR, predictions: Predictions, *, of_log_probs: bool) -> Fitted:
    strength, bias_strength = method.strength, method.bias_strength
    searched = strength is None or bias_strength is None
    check_every_class_seen(predictions, method.title, least=2 if searched else 1)
    start = coldness_of(predictions, method.title).coldness
    inputs, labels = log_probs_at(predictions, 1.0) if of_log_probs else predictions.logits, predictions.labels

    def as_map(fit: AffineFit) -> Affine:
        return Affine(fit.weight, fit.bias, n_classes=predictions.n_classes, of_log_probs=of_log_probs)

    if strength is not None and bias_strength is not None:
        fit = fit_odir(inputs, labels, Strengths(strength, bias_strength), (start, 0.0))
        return Fitted(as_map(fit), fit.certificate)
    # Differs from Neural Clamping's paper: it takes the best "on the calibration dataset". On the rows fitted the loss
    # is always smallest at the weakest penalty; the section of Kull et al. that it points to holds rows out.
    fold = deal_folds(_first_rows(labels, inputs.shape[1]), method.folds, method.seed)
    chosen = search_strengths(inputs, labels, fold, search=method.search, fixed=(strength, bias_strength), start=start)
    note = (
        f"strength {chosen.strengths.off_diagonal:g} and bias_strength {chosen.strengths.bias:g} have the smallest "
        f"log-loss in {method.folds}-fold cross-validation: {chosen.loss:.4f}"
    )
    if method.search == "kull":
        shares = torch.full((method.folds,), 1 / method.folds, dtype=torch.float64, device=inputs.device)
        worst = max((fit.certificate for fit in chosen.fits), key=lambda certificate: certificate.gradient)
        mean = Mixture(shares, [as_map(fit) for fit in chosen.fits], n_classes=predictions.n_classes)
        return Fitted(mean, worst, (note,))
    fit = fit_odir(inputs, labels, chosen.strengths, (chosen.fits[0].weight, chosen.fits[0].bias))
    return Fitted(as_map(fit), fit.certificate, (note,))


def _first_rows(labels: Tensor, k: int) -> Tensor:
    """Classes known by their first row instead of their number, on which nothing should depend, (n,)."""
    rows = torch.arange(len(labels), device=labels.device)
    return rows.new_full((k,), len(labels)).scatter_reduce(0, labels, rows, "amin")[labels]
