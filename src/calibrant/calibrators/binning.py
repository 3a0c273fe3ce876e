"""Step functions of the score: histogram binning, I-Max, Bayesian binning and isotonic regression.

Isotonic steps end midway between neighbouring calibration scores, and are level below the first and above the last. At
the calibration scores this is the same function as scikit-learn's, which draws straight lines between the steps.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from calibrant.calibrators.base import (
    Calibrator,
    Fitted,
    class_map,
    floored_log_odds,
    one_vs_rest_log_odds,
    top_label,
    warn_of_missing_classes,
)
from calibrant.checks import BinCount, Positive, check_bins
from calibrant.maps import ClassBins, PooledMap, Steps, TopLabelMap
from calibrant.numerics import isotonic
from calibrant.numerics.binning import bin_index, counts_by, inner_edges, sums_by
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import sort_in_place, to_working_precision
from calibrant.paper import GUO, NAEINI, ZHANG, Paper
from calibrant.predictions import Predictions

_GUO = GUO.at("Section 4.2")


def padded(lines: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return edges (c, b) and the values between them (c, b + 1), from a pair of lines for each of c step functions.

    Example:
        >>> one_edge, no_edge = (torch.zeros(1), torch.tensor([-1.0, 1.0])), (torch.zeros(0), torch.tensor([2.0]))
        >>> padded([one_edge, no_edge])[0].tolist()
        [[0.0], [inf]]
    """
    edges, values = zip(*lines, strict=True)
    # No score lies above infinity, so the padding of the values is never read.
    return pad_sequence(list(edges), True, torch.inf), pad_sequence(list(values), True)


BinKind: TypeAlias = Literal["equal_width", "equal_mass"]
_ZADROZNY = Paper("Zadrozny & Elkan", 2001,
                  "Obtaining calibrated probability estimates from decision trees and naive Bayesian classifiers",
                  "ICML 2001, pages 609-616")  # fmt: skip


@final
@dataclass(frozen=True)
class HistogramBinning(Calibrator, name="histogram", title="Histogram binning", family="binning", paper=_ZADROZNY):
    """The accuracy of the predictions in a bin becomes the confidence of every prediction in it.

    With enough samples it corrects any shape of miscalibration; the ECE over the same bins is 0 on the calibration
    samples, which says nothing about new ones. At most ``n_bins`` different confidences are left, so that rankings,
    selective risk and log-loss get worse, and neighbouring bins may swap order. The prediction stays; the other classes
    share the rest in proportion.

    Formula: q = (hits in the bin of p) / (samples in it), within 1/(n + 2) of 0 and 1; an empty bin keeps its midpoint
    Samples: about 50 per bin, 750 for 15 bins. With fewer a bin's share is noise of ±√(q (1 − q)/samples), and with
        fewer samples than bins equal-mass bins hold a sample each.

    Args:
        n_bins: Number of bins; with equal mass, ties can leave fewer.
        bins: "equal_mass" (equal numbers of samples), or "equal_width" (of confidence), as in most papers: confidences
            crowd near 1, so that the last of 15 equal widths often holds most samples and others too few to measure.
    """

    preserves_accuracy = True

    n_bins: BinCount = 15
    bins: BinKind = "equal_mass"

    def _fit(self, predictions: Predictions) -> Fitted:
        edges, share = _binned(*top_label(predictions), predictions.sample_counts, self.n_bins, self.bins)
        values = floored_log_odds(share, predictions.effective_size)
        return Fitted(TopLabelMap(Steps(edges[None], values[None]), n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class ClasswiseHistogramBinning(
    Calibrator, name="histogram_classwise", title="Histogram binning, classwise", family="binning", paper=_GUO
):
    """Histogram binning of every class against the rest, divided by their sum.

    It corrects each class separately, and can change the prediction. It hurts with many classes: most bins of most
    classes hold hardly a sample, and the division by the sum undoes part of what was fitted. Two classes are one
    histogram, of class 1.

    Formula: q_j ∝ (samples of class j in the bin of p_j) / (samples in it), at least 1/((n + 2)(k − 1)) before division
    Samples: about 50 of each class in each bin that matters; 1000 of each class. A class without samples gets the
        smallest probability everywhere, with a warning.

    Args:
        n_bins: Number of bins of every class.
        bins: "equal_width" (of probability) or "equal_mass". Nearly all samples give a class a probability near 0, so
            that of 15 equal masses 14 divide those, and the samples that matter share one bin.
    """

    bins_every_class = True

    n_bins: BinCount = 15
    bins: BinKind = "equal_width"

    def _fit(self, predictions: Predictions) -> Fitted:
        n, k = predictions.effective_size, predictions.n_classes
        warn_of_missing_classes(predictions, self.title)
        if self.bins == "equal_width" and k > 2:
            values = floored_log_odds(_class_shares(predictions, self.n_bins), n, k)
            return Fitted(ClassBins(values, n_classes=k))
        lines = []
        for log_odds, label in zip(*one_vs_rest_log_odds(predictions), strict=True):
            hit, weights = predictions.labels == label, predictions.sample_counts
            edges, share = _binned(log_odds, hit, weights, self.n_bins, self.bins)
            lines.append((edges, floored_log_odds(share, n, k)))
        return Fitted(class_map(Steps(*padded(lines)), k))


def _binned(log_odds: Tensor, hit: Tensor, weights: Tensor | None, n_bins: int, bins: BinKind) -> tuple[Tensor, Tensor]:
    """Return the edges between bins, as log-odds, (b - 1,), and the share of hits in each, (b,)."""
    if bins == "equal_width":
        edges = torch.logit(inner_edges(n_bins, log_odds.device))
        place = torch.searchsorted(edges.to(log_odds), log_odds)  # exactly as the map will search them
        if weights is None:
            return edges, hit_shares(*counts_by(place, hit, n_bins))
        return edges, hit_shares(sums_by(place, weights, n_bins), sums_by(place, weights * hit, n_bins))
    return equal_mass_shares(isotonic.tie_blocks(log_odds, hit, weights), n_bins)


def equal_mass_shares(ties: isotonic.Blocks, n_bins: int) -> tuple[Tensor, Tensor]:
    """Return the edges between bins of equal mass, (b - 1,), and the share of hits in each, (b,)."""
    up_to = ties.rows.cumsum(0)
    starts = isotonic.equal_mass_starts(up_to, n_bins)
    count, hits = _between(starts, up_to, ties.hits.cumsum(0))
    return ties.edges[starts[1:] - 1], hits / count


def _between(starts: Tensor, *up_to: Tensor) -> Iterator[Tensor]:
    """Yield sums over the bins that start at these places, (b,), of each column of cumulative sums, (m,)."""
    last = torch.cat([starts[1:], starts.new_tensor([len(up_to[0])])]) - 1
    return (sums[last].diff(prepend=sums.new_zeros(1)) for sums in up_to)


def _class_shares(predictions: Predictions, n_bins: int) -> Tensor:
    """Return the share of every class in each bin of its probability, (k, b)."""
    k, device = predictions.n_classes, predictions.logits.device
    first = torch.arange(0, k * n_bins, n_bins, dtype=torch.int32, device=device)
    count, hits = torch.zeros(2, k * n_bins, dtype=torch.float64, device=device)
    for block in predictions.small_blocks():
        cells = bin_index(to_working_precision(block.logits).softmax(dim=1), n_bins).add_(first)
        weights = block.weights
        repeated = None if weights is None else weights.repeat_interleave(k)
        count += torch.bincount(cells.flatten(), repeated, minlength=k * n_bins)
        hits += torch.bincount(cells.gather(1, block.labels[:, None])[:, 0], weights, minlength=k * n_bins)
    return hit_shares(count.view(k, n_bins), hits.view(k, n_bins))


def hit_shares(count: Tensor, hits: Tensor) -> Tensor:
    """Return the share of hits in bins of equal width, (..., b); the midpoint of an empty bin."""
    n_bins = count.shape[-1]
    middle = (torch.arange(n_bins, dtype=torch.float64, device=count.device) + 0.5) / n_bins
    return torch.where(count > 0, hits / count, middle)


IMaxSharing: TypeAlias = Literal["shared", "classwise"]
_PATEL = Paper("Patel et al.", 2021,
               "Multi-Class Uncertainty Calibration via Mutual Information Maximization-based Binning",
               "arXiv:2006.13092")  # fmt: skip


@final
@dataclass(frozen=True)
class IMax(Calibrator, name="imax", title="I-Max binning", family="binning", paper=_PATEL):
    """Histogram binning of every class against the rest, with edges that keep the most information about the label.

    Bins of equal width or equal mass are wasted on the many samples where a class is all but excluded; these lie where
    the label is in doubt, so that few bins cost little accuracy. One histogram for all classes together makes the most
    of few samples, and cannot see what is peculiar to a class. It hurts when two classes of a sample fall into one bin:
    their order is lost, and with it a little accuracy and log-loss. Edges depend on the model's own probabilities;
    scale badly overconfident ones first (``temperature+imax``). With two classes, class 1 is binned.

    Formula: q_j ∝ m_b/N_b, b the bin of class j's log-odds λ; edges g_b maximise I(y; b) =
        H(y) − Σ_b N_b/n · H(mean of σ(λ) in bin b), with m_b of N_b samples in bin b of that class
    Samples: 300 in all if shared; classwise 200 of every class, since with fewer a bin without a hit costs more
        log-loss than all others gain.

    Args:
        n_bins: The most bins.
        sharing: ``shared``: one histogram of all classes' log-odds; ``classwise``: one for each class.
    """

    bins_every_class = True

    n_bins: Annotated[int, partial(check_bins, least=2)] = 15
    sharing: IMaxSharing = "shared"

    def _fit(self, predictions: Predictions) -> Fitted:
        (scores, classes), weights = one_vs_rest_log_odds(predictions), predictions.sample_counts
        hit = predictions.labels == classes[:, None]
        if self.sharing == "shared" and predictions.n_classes > 2:
            weights = None if weights is None else weights.repeat(len(scores))
            scores, hit = scores.reshape(1, -1), hit.reshape(1, -1)
        else:
            warn_of_missing_classes(predictions, self.title)
        bins = [_informative(line, weights, self.n_bins) for line in scores]
        lines = []
        for best, hits, line in zip(bins, hit, scores, strict=True):
            edges = torch.from_numpy(best.edges).to(scores.device)
            of_hits = _counts(edges, line[hits], None if weights is None else weights[hits])
            share = of_hits / _counts(edges, line, weights)
            lines.append((edges, floored_log_odds(share, predictions.effective_size, predictions.n_classes)))
        certificate = Certificate(
            objective=-sum(best.information[-1] for best in bins) / len(bins),
            gradient=max(0.0, *(best.information[-1] - best.information[-2] for best in bins)),
            steps=max(len(best.information) - 1 for best in bins),
            passes=1.0,
        )
        return Fitted(class_map(Steps(*padded(lines)), predictions.n_classes), certificate)


def _informative(scores: Tensor, weights: Tensor | None, n_bins: int) -> isotonic.InformativeBins:
    if weights is None:
        return isotonic.informative_bins(sort_in_place(scores.clone()).cpu().numpy(), n_bins)
    rising, order = scores.sort()
    return isotonic.informative_bins(rising.cpu().numpy(), n_bins, weights[order].cpu().numpy())


def _counts(edges: Tensor, scores: Tensor, weights: Tensor | None) -> Tensor:
    return torch.bincount(torch.searchsorted(edges, scores.double()), weights, minlength=len(edges) + 1).double()


BBQPrior: TypeAlias = Literal["bin", "binning"]

# Binnings of less posterior probability are left out: together they would change no probability by 1e-9.
_NEGLIGIBLE = 1e-12


@final
@dataclass(frozen=True)
class BayesianBinning(Calibrator, name="bbq", title="Bayesian binning into quantiles", family="binning", paper=NAEINI):
    """Histograms of the confidence with every sensible number of equally filled bins, averaged by their probability.

    It spares the choice that histogram binning depends on, and smooths its steps: few bins win on little data, more on
    plenty. The average still need not rise with the confidence, so a more confident sample can end below a less
    confident one. Only the confidence of the predicted class is calibrated, also with two classes; the others share the
    rest in proportion, so with many classes the log-loss needs a temperature first (``temperature+bbq``).

    Formula: q = Σ_M P(M|D) (m_b + wp_b)/(N_b + w); P(M|D) ∝ Π_b β(m_b + wp_b, N_b − m_b + w − wp_b)/β(wp_b, w − wp_b),
        with the beta function β and p_b the middle of bin b, over n^⅓/C <= B <= C n^⅓ bins; w = N'/B in the paper
    Samples: 200 or more; with fewer it falls back towards one or two bins, and does no harm at 10.

    Args:
        range_factor: C: how far the number of bins may be from the cube root of the samples, as a factor.
        prior_rows: How many samples the prior is worth.
        prior_for: Whether w is that for every "bin" (as in the authors' program; safer with few samples), or is shared
            by all bins of a "binning" (as the paper is mostly read: N' = 2).
    """

    preserves_accuracy = True

    range_factor: Positive = 10.0
    prior_rows: Positive = 2.0
    prior_for: BBQPrior = "bin"

    def _fit(self, predictions: Predictions) -> Fitted:
        ties, n = isotonic.tie_blocks(*top_label(predictions), predictions.sample_counts), predictions.effective_size
        up_to, hits_up_to = ties.rows.cumsum(0), ties.hits.cumsum(0)
        binnings, probs, likelihoods = self._starts(up_to), [], []
        for starts in binnings:
            # Differs from the paper: the lowest bin starts at 1/k, not 0, as no confidence lies below.
            inner, lowest = ties.edges[starts[1:] - 1].sigmoid(), up_to.new_tensor([1 / predictions.n_classes])
            ends = torch.cat([lowest, inner, up_to.new_ones(1)])
            prior = ((ends[1:] + ends[:-1]) / 2).clamp(1 / (n + 2), 1 - 1 / (n + 2))
            weight = self.prior_rows / (len(starts) if self.prior_for == "binning" else 1)
            count, hits = _between(starts, up_to, hits_up_to)
            mean, likelihood = _beta_binomial(count, hits, weight * prior, weight * (1 - prior))
            probs.append(mean)
            likelihoods.append(likelihood)
        # A mean of step functions is one step function: add up the jumps of each where its bins start.
        jumps = torch.zeros_like(ties.rows)
        posterior = torch.stack(likelihoods).softmax(0).tolist()
        for starts, mean, weight in zip(binnings, probs, posterior, strict=True):
            if weight > _NEGLIGIBLE:
                jumps.index_add_(0, starts, weight * mean.diff(prepend=jumps.new_zeros(1)))
        starts = jumps.nonzero().flatten()
        values = floored_log_odds(jumps.cumsum(0)[starts], n)
        curve = Steps(ties.edges[starts[1:] - 1][None], values[None])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes))

    def _starts(self, up_to: Tensor) -> list[Tensor]:
        """Return where bins start, for each number of bins; ties can make two of these the same, which counts once."""
        root = float(up_to[-1]) ** (1 / 3)
        fewest, most = max(1, math.floor(root / self.range_factor)), math.ceil(root * self.range_factor)
        distinct = {
            tuple(isotonic.equal_mass_starts(up_to, n_bins).tolist()) for n_bins in range(fewest, max(fewest, most) + 1)
        }
        ordered = sorted(distinct, key=lambda starts: (len(starts), starts))
        return [torch.tensor(starts, device=up_to.device) for starts in ordered]


def _beta_binomial(count: Tensor, hits: Tensor, prior_hits: Tensor, prior_misses: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the posterior in each bin, (b,), and the log-likelihood of all bins together."""
    total = prior_hits + prior_misses
    log_likelihood = (
        (torch.lgamma(total) - torch.lgamma(count + total))
        + (torch.lgamma(hits + prior_hits) - torch.lgamma(prior_hits))
        + (torch.lgamma(count - hits + prior_misses) - torch.lgamma(prior_misses))
    )
    return (hits + prior_hits) / (count + total), log_likelihood.sum()


_ELKAN = Paper("Zadrozny & Elkan", 2002,
               "Transforming classifier scores into accurate multiclass probability estimates",
               "doi:10.1145/775047.775151")  # fmt: skip


@final
@dataclass(frozen=True)
class IsotonicRegression(Calibrator, name="isotonic", title="Isotonic regression", family="binning", paper=_ELKAN):
    """The non-decreasing function of the confidence that is nearest to correctness in squared error.

    Like histogram binning with bins that choose themselves, and never puts a less confident prediction above a more
    confident one. It beats temperature scaling where the error is no matter of scale and samples are many. With few
    samples it follows the noise: the lowest and highest steps rest on a handful of samples. It makes ties, which blunts
    rankings. The prediction stays; the other classes share the rest in proportion.

    Formula: min Σ (q(p_i) − correct_i)² over non-decreasing q; q within 1/(n + 2) of 0 and 1
    Samples: about 1000. With fewer prefer Platt or temperature scaling; ten samples work, and are mostly floor.
    """

    preserves_accuracy = True
    preserves_ranking = True

    def _fit(self, predictions: Predictions) -> Fitted:
        line = _isotonic(predictions, *top_label(predictions), 2)
        return Fitted(TopLabelMap(Steps(*padded([line])), n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class IsotonicOneVsRest(
    Calibrator, name="isotonic_ovr", title="Isotonic regression, one against the rest", family="binning", paper=_ELKAN
):
    """Isotonic regression of every class against the rest, divided by their sum.

    Most libraries extend isotonic regression to many classes in this way. It needs samples of every class, and with
    many classes it is ruinous: at 1000 classes the log-loss can grow tenfold. Use temperature or vector scaling there,
    or the pooled version, which has one function for all classes. Two classes are one regression, of class 1.

    Formula: q_j ∝ the non-decreasing function of p_j nearest to 1[y = j], at least 1/((n + 2)(k − 1)) before division
    Samples: about 1000 of each class. A class without samples gets the smallest probability everywhere, with a warning.
    """

    def _fit(self, predictions: Predictions) -> Fitted:
        warn_of_missing_classes(predictions, self.title)
        k, scored = predictions.n_classes, zip(*one_vs_rest_log_odds(predictions), strict=True)
        lines = [_isotonic(predictions, line, predictions.labels == label, k) for line, label in scored]
        return Fitted(class_map(Steps(*padded(lines)), k))


@final
@dataclass(frozen=True)
class IsotonicPooled(
    Calibrator, name="irm", title="Isotonic regression, classes pooled", family="binning", paper=ZHANG
):
    """One isotonic regression of all classes' probabilities together, divided by their sum (IRM).

    All n·k pairs of a probability and whether it was the label's fit one function, so it needs k times fewer samples
    than one for each class, and the predicted class stays. It cannot correct a single class, and it makes ties among
    the classes of a sample.

    Formula: q_j ∝ f(p_j), f the non-decreasing function nearest to all pairs (p_ij, 1[y_i = j])
    Samples: about 500, whatever the number of classes. With fewer the steps near 1 rest on a handful of samples.
    """

    preserves_accuracy = True
    preserves_ranking = False  # the other classes enter by the division by the sum

    def _fit(self, predictions: Predictions) -> Fitted:
        # Differs from the paper: it makes f strictly rising by a tiny slope, which float32 rounds away; here ties stay,
        # and the map puts the predicted class ahead of those tied with it.
        k, (scores, classes) = predictions.n_classes, one_vs_rest_log_odds(predictions)
        hit = predictions.labels == classes[:, None]
        if k == 2:
            # The pairs of class 0 mirror those of class 1.
            scores, hit = torch.cat([scores, -scores]), torch.cat([hit, ~hit])
        line = _isotonic(predictions, scores.flatten(), hit.flatten(), k)
        return Fitted(PooledMap(Steps(*padded([line])), n_classes=k))


def _isotonic(predictions: Predictions, scores: Tensor, hit: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the edges between the steps, (b - 1,), and their log-odds, (b,), given one or more scores per sample."""
    weights = predictions.sample_counts
    if weights is not None:
        weights = weights.repeat(len(scores) // len(weights))
    blocks = isotonic.isotonic_blocks(scores, hit, weights)
    return blocks.edges, floored_log_odds(blocks.mean, predictions.effective_size, n_classes)
