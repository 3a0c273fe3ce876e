"""Predictions without labels beside a labelled reference: class proportions, expected accuracy, an adjusted map.

Label shift is the assumption: classes are more or less frequent than in the reference, and samples of one class look
as they did. Then the scores of new samples are a mixture of those of the classes, in unknown proportions, of which
these have most likelihood (:mod:`calibrant.numerics.mixture`); and what is to be expected of the new samples is what
the reference samples show, reweighted by class. Whether the new scores look like that is itself tested.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.calibrators.base import absent_classes, class_names
from calibrant.checks import as_tensor, with_devices_of_inputs
from calibrant.errors import Argument, FitError, InputError, SeparableError
from calibrant.evidence import LEVEL, Estimate, holm
from calibrant.evidence.intervals import FEWEST
from calibrant.evidence.label_shift import Discrepancy, LabelShift, Scores
from calibrant.maps import Affine, ChainMap, FitSummary, Map
from calibrant.numerics.binning import sums_by
from calibrant.numerics.newton import Certificate
from calibrant.predictions import LABEL_FLOOR, Predictions, counted_samples

__all__ = ["ClassShare", "Distribution", "Expected", "Shift", "measure_shift"]

_BINS = 20  # of the histograms
_IMMATERIAL = 0.01  # share of the samples: very many show the smallest difference
_HALF_WIDTHS = (0.1, 0.05)  # of the accuracy's interval, that labels are counted for
_TRIED = 20  # resamples that adjusted predictions are evaluated at
_NUMBERS, _FEWEST = 1 << 21, 2000  # logits to evaluate them on, and samples at least
_Z = 1.959963984540054
GIVEN, CALIBRATED, ADJUSTED = "given", "calibrated", "adjusted"


@final
@dataclass(frozen=True)
class ClassShare:
    """The proportion of a class among the reference samples and among the new ones."""

    name: str
    reference: Estimate
    new: Estimate
    p: float  # of no change of this class, corrected for the number of classes
    is_changed: bool  # beyond chance, where all proportions together are
    actual: float | None = None  # by the labels of the new samples


@final
@dataclass(frozen=True)
class Expected:
    """What to expect of predictions for the new samples, where samples of one class look as they did."""

    on_reference: Estimate  # accuracy there
    accuracy: Estimate
    nll: Estimate
    actual: dict[str, float] | None = None  # accuracy and nll by the labels of the new samples


@final
class Distribution(NamedTuple):
    """Shares of the samples in bins, (bins,) each."""

    edges: Tensor  # (bins + 1,)
    reference: Tensor
    reweighted: Tensor  # of the reference with the new proportions
    low: Tensor  # between these the shares of new samples would be in 95 of 100 cases, were they distributed like it
    high: Tensor
    new: Tensor


@final
@dataclass(frozen=True)
class Shift:
    """The change of the class proportions from a labelled reference to new samples, and what follows from it."""

    classes: tuple[ClassShare, ...]
    p_unchanged: float  # of the hypothesis that the proportions are those of the reference
    p_label_shift: float  # of the hypothesis that only they changed
    parts: Mapping[str, Discrepancy]  # its tests: of confidence, spread of log-probabilities, and predicted classes
    expected: Mapping[str, Expected]  # of predictions as given, calibrated on the reference, and adjusted
    gain: Mapping[str, Estimate]  # accuracy and nll: adjusted minus given
    n_reference: int
    n_new: int
    effective: tuple[float, float]  # samples of equal weight that know as much
    clusters: tuple[int | None, int | None]
    certificate: Certificate  # its gradient bounds how far the mean log-likelihood lies below its maximum
    resamples: int
    seed: int
    map: Map = field(repr=False)  # calibrates and adjusts
    distributions: Mapping[str, Distribution] = field(repr=False)  # of confidence and spread

    @property
    def is_changed(self) -> bool:
        """Whether the proportions changed beyond chance."""
        return self.p_unchanged <= LEVEL

    @property
    def is_label_shift(self) -> bool:
        """Whether the scores may come from a change of the proportions alone, but for less than one in a hundred."""
        return self.p_label_shift > LEVEL or max(part.distance for part in self.parts.values()) < _IMMATERIAL

    @property
    def labels_needed(self) -> dict[float, int]:
        """How many labelled new samples show the accuracy to plus or minus so much, whatever it is."""
        return {half: math.ceil((_Z / 2 / half) ** 2) for half in _HALF_WIDTHS}

    @property
    def covered(self) -> int | None:
        """Number of classes whose interval holds the actual proportion; None without labels."""
        known = [(one.actual, one.new) for one in self.classes if one.actual is not None]
        return sum(new.low <= actual <= new.high for actual, new in known) if known else None


@with_devices_of_inputs
def measure_shift(  # noqa: PLR0913  # what is given, and how it is resampled
    reference: Predictions,
    new: Predictions | None = None,
    *,
    logits: Any = None,
    probs: Any = None,
    labelled: bool = False,
    fitted: Map | None = None,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Shift:
    """Estimate the class proportions of new samples without labels, and what to expect of predictions for them.

    A bias-corrected temperature is fitted on the reference (Alexandari et al.), after which the mean probability of a
    class is its share there. The proportions of most likelihood follow (Saerens et al.), solved to a certificate.
    Accuracy and log-loss are those of the reference samples, reweighted by class, each calibrated as if it had been
    left out of the fit. All of it holds if samples of one class look as they do in the reference: ``p_label_shift`` is
    small where they do not, and then neither proportions nor accuracy can be trusted. It sees no more than the scores:
    samples of one class that have turned into what looks like another count as that one.

    Args:
        reference: Samples with labels, some of every class, that the model was not trained on.
        new: New samples of the same model. Their labels are not read, unless they are ``labelled``.
        logits: Logits of the new samples, (n, k), instead of ``new``.
        probs: Their probabilities, (n, k), instead of ``new``.
        labelled: Whether the labels of ``new`` are true ones, which then show how close the estimates are.
        fitted: Map in use, whose result is calibrated once more and adjusted; the new map begins with it.
        resamples: Number of bootstrap draws; of samples in clusters, clusters are drawn.
        seed: Random seed.
        progress: Called with what is computed.

    Returns:
        The proportions with 95 % intervals, two tests, the expected accuracy and log-loss, and the adjusted map.

    Raises:
        InputError: If the two do not have the same classes, or either has fewer than ten samples.
        FitError: If the reference has no sample of a class, or too few wrong predictions to be calibrated on.

    References: Saerens, Latinne & Decaestecker (2002), Adjusting the Outputs of a Classifier to New a Priori
    Probabilities, Neural Computation; Alexandari, Kundaje & Shrikumar (2020), Maximum Likelihood with Bias-Corrected
    Calibration is Hard-To-Beat at Label Shift Adaptation, arXiv:1901.06852.

    Example:
        >>> labels = torch.arange(4000) % 2
        >>> logits = 2 * torch.eye(2)[labels] + torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
        >>> reference, others = Predictions.from_logits(logits[:2000], labels[:2000]), logits[2000:]
        >>> shift = measure_shift(reference, logits=torch.cat([others[1::2], others[:500:2]]))  # 80 % of class 1
        >>> round(shift.classes[1].new.value, 1), shift.is_changed, shift.is_label_shift
        (0.8, True, True)
    """
    new = _as_new(new, logits, probs)
    _check(reference, new)
    reference, new = counted_samples(reference), counted_samples(new)
    pair = [one if fitted is None else fitted.transform(one) for one in (reference, new)]
    progress("calibrating the reference")
    calibrated = _calibrated(pair[0])
    progress("estimating the proportions")
    rng, numbers = np.random.default_rng([seed, 7]), (calibrated.weight, calibrated.bias)
    mixed = [one.mixed_with_uniform(float(calibrated.uniform_share or 0)) for one in pair]
    labels = reference.labels.cpu()
    old, now = (Scores.of(one, *numbers, resamples, rng) for one in mixed)
    estimated = LabelShift.of(old, now, labels)
    made = _adjusted(calibrated, estimated, fitted, new)
    progress("testing")
    p_unchanged, parts = estimated.p_unchanged(), estimated.goodness_of_fit()
    expected, gain = _expected(estimated, pair[0], numbers, made)
    if labelled:
        results = {GIVEN: pair[1], CALIBRATED: calibrated.transform(pair[1]), ADJUSTED: made.transform(new)}
        for name, one in results.items():
            actual = zip(
                ("accuracy", "nll"), (one.mass.cpu() @ _scores(one) / one.mass.sum().cpu()).tolist(), strict=True
            )
            expected[name] = replace(expected[name], actual=dict(actual))
    return Shift(
        classes=_classes(estimated, new if labelled else None, reference.class_names or new.class_names, p_unchanged),
        p_unchanged=p_unchanged,
        p_label_shift=min(1.0, len(parts) * min(part.p for part in parts.values())),
        parts=parts,
        expected=expected,
        gain=gain,
        n_reference=len(reference),
        n_new=len(new),
        effective=(reference.effective_size, new.effective_size),
        clusters=(reference.n_clusters, new.n_clusters),
        certificate=estimated.fit.certificate,
        resamples=resamples,
        seed=seed,
        map=made,
        distributions=_distributions(estimated),
    )


def _as_new(new: Predictions | None, logits: Any, probs: Any) -> Predictions:
    """Return the new samples; arrays get the classes that they are predicted to be of for labels."""
    if sum(values is not None for values in (new, logits, probs)) != 1:
        raise InputError("new samples must be given once: new=, logits= or probs=.")
    if new is not None:
        return new
    values = as_tensor(probs if logits is None else logits, "logits" if probs is None else "probs")
    labels = values.argmax(dim=1) if values.ndim == 2 and values.numel() else torch.zeros(values.shape[:1]).long()
    make = Predictions.from_logits if probs is None else Predictions.from_probs
    return make(probs if logits is None else logits, labels)


def _check(reference: Predictions, new: Predictions) -> None:
    """Check that two sets have the same classes, and as many samples as estimates need."""
    if (k := reference.n_classes) != new.n_classes:
        raise InputError(
            f"reference and new samples must have the same classes; got {k} and {new.n_classes}. Take both from one "
            "model."
        )
    ours, theirs = reference.class_names, new.class_names
    if ours is not None and theirs is not None and ours != theirs:
        j = next(j for j in range(k) if ours[j] != theirs[j])
        same = sorted(ours) == sorted(theirs)
        hint = (
            "Name the columns of the scores in one order: "
            if same
            else "Take both from one model, or name them alike: "
        )
        raise InputError(
            f"reference and new samples must name the classes alike, in the same order; class {j} is {ours[j]!r} and "
            f"{theirs[j]!r}. {hint}",
            Argument("scores", "A,B,C", is_literal=False),
            ".",
        )
    for name, size in (("reference", reference.effective_size), ("new", new.effective_size)):
        if size < FEWEST:
            raise InputError(f"there must be {FEWEST} {name} samples or more; got {size:.0f}. Gather more.")
    if len(lacking := absent_classes(reference.with_positive_weights())):
        raise FitError(
            "the reference must have samples of every class, or no new sample can be recognised as one; it has "
            f"none of class {class_names(lacking, reference)}. Add labelled samples of it, or leave its scores out of "
            "both files."
        )


def _calibrated(reference: Predictions) -> Affine:
    """Return the map of a bias-corrected temperature."""
    try:
        fitted = BiasCorrectedTemperature().fit_without_scores(reference)
    except SeparableError as error:
        right = f"{int(reference.correct.sum()):,} of {len(reference):,}"
        raise SeparableError(
            f"the reference must have enough wrong predictions to show how sure the model may be; {right} are right, "
            "and larger logits are always better. Add labelled samples."
        ) from error
    assert isinstance(fitted, Affine)
    return fitted


def _adjusted(calibrated: Affine, estimated: LabelShift, fitted: Map | None, new: Predictions) -> Affine | ChainMap:
    """Return the map that calibrates and adjusts, behind the map in use if there is one.

    A class of which nothing was seen is taken for as rare as half a sample, and not for impossible.
    """
    shares = estimated.fit.shares.maximum(estimated.reference.clamp(max=0.5 / (new.effective_size + 1)))
    bias = calibrated.bias.cpu() + (shares / estimated.reference).log()
    made = Affine(calibrated.weight, (bias - bias.mean()).to(calibrated.bias), n_classes=calibrated.n_classes)
    if (share := calibrated.uniform_share) is not None:
        made.mix_in(share)
    whole = made if fitted is None else ChainMap([fitted, made], n_classes=made.n_classes)
    note = f"class proportions adjusted to {len(new):,} samples without labels"
    whole.summary = FitSummary("bias_corrected", rows=len(estimated.labels), notes=(note,))
    whole.class_names = made.class_names = calibrated.class_names
    return whole


def _scores(samples: Predictions, logits: Tensor | None = None) -> Tensor:
    """Return whether each sample is predicted right and its log-loss, (n, 2), on the CPU; by other logits if given."""
    logits, labels = (samples.logits.double() if logits is None else logits).cpu(), samples.labels.cpu()
    nll = logits.logsumexp(dim=1) - logits.gather(1, labels[:, None])[:, 0]
    nll = nll.clamp(max=-math.log(LABEL_FLOOR)) if samples.given_as_probs else nll
    return torch.stack([(logits.argmax(dim=1) == labels).double(), nll], dim=1)


def _expected(
    estimated: LabelShift, given: Predictions, numbers: tuple[Tensor, Tensor], made: Affine | ChainMap
) -> tuple[dict[str, Expected], dict[str, Estimate]]:
    """Return what to expect of the new samples, and the gain of the adjusted predictions over the given ones."""
    weight, bias = (number.cpu() for number in numbers)
    own = estimated.left_out()
    calibrated = estimated.old.inputs * (weight - own[:, :1]) + (bias - own[:, 1:])
    last = made.maps[-1] if isinstance(made, ChainMap) else made
    shifted = calibrated + (last.get_buffer("bias").cpu() - bias)
    values = torch.cat([_scores(given), _scores(given, calibrated), _scores(given, shifted)], dim=1)
    reference = (
        estimated.old.mass @ values,
        estimated.old.mass @ values + estimated.old.drawn(estimated.old.sums(values)),
    )
    means, drawn = estimated.expected(values)
    flattered = _flattered(estimated, given, calibrated)
    means[4:], drawn[:, 4:] = means[4:] - flattered, drawn[:, 4:] - flattered

    def estimate(of: tuple[Tensor, Tensor], column: int, trials: float | None = None) -> Estimate:
        return estimated.interval(float(of[0][column]), of[1][:, column], trials)

    new, expected = (means, drawn), {}
    for place, name in enumerate((GIVEN, CALIBRATED, ADJUSTED)):
        right, loss = 2 * place, 2 * place + 1
        there = estimate(reference, right, estimated.old.size)
        expected[name] = Expected(there, estimate(new, right, estimated.effective_size), estimate(new, loss))
    gain = (means[4:] - means[:2], drawn[:, 4:] - drawn[:, :2])
    return expected, {name: estimate(gain, column) for column, name in enumerate(("accuracy", "nll"))}


def _flattered(estimated: LabelShift, given: Predictions, calibrated: Tensor) -> Tensor:
    """Return by how much accuracy and log-loss of adjusted predictions are too good at the estimated proportions, (2,).

    The noise of these favours the very classes that it makes seem frequent. Resamples show how much: adjusted to their
    proportions, predictions are better for these than for those of all samples.
    """
    shares, k = estimated.fit.shares, calibrated.shape[1]
    rows = torch.randperm(len(calibrated), generator=torch.Generator().manual_seed(0))[: max(_FEWEST, _NUMBERS // k)]
    some, mass, labels = calibrated[rows], estimated.old.mass[rows], estimated.labels[rows]
    of_class = sums_by(labels, mass, k).clamp(min=1e-300)
    least = 0.5 / (estimated.new.size + 1)

    def by_class(proportions: Tensor) -> Tensor:  # (k, 2)
        scores = _scores(
            given[rows.to(given.device)], some + (proportions.clamp(min=least) / estimated.reference).log()
        )
        return torch.stack([sums_by(labels, mass * column, k) / of_class for column in scores.T], dim=1)

    own, step = by_class(shares), max(1, len(estimated.drawn) // _TRIED)
    differences = [(one - shares) @ (by_class(one) - own) for one in estimated.drawn[::step][:_TRIED]]
    return torch.stack(differences).mean(dim=0)


def _classes(
    estimated: LabelShift, known: Predictions | None, names: tuple[str, ...] | None, p_unchanged: float
) -> tuple[ClassShare, ...]:
    """Return the proportions of all classes; one is changed only where all of them together are."""
    k = len(estimated.reference)
    corrected = holm({str(j): p for j, p in enumerate(estimated.p_of_classes().tolist())})
    of_labels = estimated.old.counts(estimated.labels, k)
    drawn = estimated.reference + estimated.old.drawn(of_labels)
    actual = None if known is None else sums_by(known.labels.cpu(), known.mass.cpu() / known.mass.sum().cpu(), k)
    return tuple(
        ClassShare(
            str(j) if names is None else names[j],
            estimated.interval(float(estimated.reference[j]), drawn[:, j], estimated.old.size),
            estimated.interval(float(estimated.fit.shares[j]), estimated.drawn[:, j], estimated.new.size),
            corrected[str(j)],
            p_unchanged <= LEVEL and corrected[str(j)] <= LEVEL,
            None if actual is None else float(actual[j]),
        )
        for j in range(k)
    )


def _distributions(estimated: LabelShift) -> dict[str, Distribution]:
    """Return the distributions of what is compared, in bins of equal width."""
    made, inner = {}, torch.tensor([0.025, 0.975], dtype=torch.float64)
    for name, (old, new) in estimated.features().items():
        k = len(estimated.reference)
        ends = (0.0 if k == 2 else 1 / k, 1.0)
        if name == "spread":
            ends = (min(float(old.min()), float(new.min())), max(float(old.max()), float(new.max())) + 1e-9)
        edges = torch.linspace(*ends, _BINS + 1, dtype=torch.float64)
        reweighted, gap, drawn = estimated.compared(old, new, edges[1:-1])
        low, high = torch.quantile(drawn, inner, dim=0)
        place = torch.searchsorted(edges[1:-1], old, right=True)
        reference = sums_by(place, estimated.old.mass, _BINS)
        band = ((reweighted + low).clamp(min=0), reweighted + high)
        made[name] = Distribution(edges, reference, reweighted, *band, reweighted + gap)
    return made
