"""TrustScore beside all pairs of distances in plain loops, and every place where a ratio of distances goes wrong."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from calibrant import Predictions, auroc
from calibrant.confidence import NeighbourConfidence, TrustScore, trust_score
from calibrant.confidence.trust_score import nearest_sample_distances
from calibrant.errors import CalibrantWarning, InputError

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def some_rows(n, d, seed, classes=4):
    """Overlapping clouds, one a class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, d))
    return centres[labels] + random.normal(size=(n, d)), labels


def oracle(train, labels, points, predicted, *, alpha=0.0, neighbours=10):
    """The trust score as the paper defines it: every distance, one at a time."""
    kept = []
    for item in np.unique(labels):
        members = train[labels == item]
        radii = []
        for i, row in enumerate(members):
            others = np.sort([np.sqrt(((row - other) ** 2).sum()) for j, other in enumerate(members) if j != i])
            radii.append(others[min(neighbours, len(others)) - 1])
        stays = len(members) - int(alpha * len(members) + 1e-9)
        kept += [(item, row) for row, radius in zip(members, radii, strict=True) if radius <= sorted(radii)[stays - 1]]
    scores = []
    for point, answer in zip(points, predicted, strict=True):
        distances = [(item, np.sqrt(((point - row) ** 2).sum())) for item, row in kept]
        own = min(distance for item, distance in distances if item == answer)
        scores.append(min(distance for item, distance in distances if item != answer) / own)
    return np.array(scores)


@pytest.fixture(params=["products", "tree"])
def search(request, monkeypatch):
    """Three dimensions are searched by either, as there are few or many samples."""
    monkeypatch.setattr(trust_score, "_MANY_PAIRS", 0 if request.param == "tree" else 1 << 60)


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_it_is_the_ratio_of_distances_that_all_pairs_give(d, alpha):
    train, labels = some_rows(160, d, seed=0)
    points, predicted = some_rows(70, d, seed=1)
    fitted = TrustScore(alpha=alpha, neighbours=5).fit(train, labels)
    scores = fitted.scores(torch.from_numpy(points), torch.from_numpy(predicted))
    expected = oracle(train, labels, points, predicted, alpha=alpha, neighbours=5)
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted(points, predicted).numpy(), np.log(expected), atol=1e-9)


def test_the_filter_changes_the_scores():
    train, labels = some_rows(160, 3, seed=0)
    points, predicted = some_rows(70, 3, seed=1)
    plain, filtered = (TrustScore(alpha=alpha).fit(train, labels) for alpha in (0.0, 0.3))
    assert len(plain.reference) == 160
    assert len(filtered.reference) == sum(n - int(0.3 * n) for n in np.bincount(labels))
    assert not torch.equal(plain(points, predicted), filtered(points, predicted))


def test_the_filter_leaves_out_a_sample_that_lies_among_another_class():
    train = torch.cat([torch.linspace(0, 1, 20), torch.tensor([10.0]), torch.linspace(9, 11, 21)])[:, None]
    labels = torch.tensor([0] * 21 + [1] * 21)
    point = torch.tensor([[10.02]])
    assert TrustScore().fit(train, labels).scores(point, [1]) < 2
    assert TrustScore(alpha=0.05).fit(train, labels).scores(point, [1]) > 100


def test_of_a_new_point_the_nearest_sample_counts_and_not_the_second():
    trust = TrustScore().fit([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1])
    assert trust.scores([[0.1]], [0]).tolist() == pytest.approx([99.0])  # 9.9 / 0.1


def test_a_sample_is_no_neighbour_of_itself_in_the_filter():
    # With itself counted, the first neighbour of every sample would be at distance 0, and all would stay.
    trust = TrustScore(alpha=0.25, neighbours=1).fit(
        [[0.0], [0.1], [0.2], [5.0], [9.0], [9.1], [9.2], [20.0]], [0, 0, 0, 0, 1, 1, 1, 1]
    )
    assert trust.reference[:, 0].tolist() == [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]


def test_a_sample_that_is_there_twice_has_its_twin_for_a_neighbour():
    trust = TrustScore(alpha=0.25, neighbours=1).fit(
        [[0.0], [0.0], [3.0], [5.0], [9.0], [9.0], [9.5], [99.0]], [0, 0, 0, 0, 1, 1, 1, 1]
    )
    # Of 3 and 5, each the other's neighbour, neither is denser: both stay.
    assert trust.reference[:, 0].tolist() == [0.0, 0.0, 3.0, 5.0, 9.0, 9.0, 9.5]


def test_the_order_of_training_samples_plays_no_part():
    train, labels = some_rows(120, 3, seed=0)
    points, predicted = some_rows(30, 3, seed=1)
    order = np.random.default_rng(0).permutation(120)
    first, second = (
        TrustScore(alpha=0.2).fit(*samples) for samples in ((train, labels), (train[order], labels[order]))
    )
    assert torch.allclose(first(points, predicted), second(points, predicted), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 0.999999])
def test_a_class_keeps_at_least_one_sample(alpha):
    features, labels = [[0.0], [1.0], [2.0], [8.0], [9.0], [10.0]], [0, 0, 0, 1, 1, 1]
    trust = TrustScore(alpha=alpha, neighbours=2).fit(features, labels)
    assert trust.classes.unique().tolist() == [0, 1]
    assert math.isfinite(float(trust([[4.0]], [0])))


def test_a_class_with_few_samples_takes_the_neighbours_there_are_and_warns():
    features = [[float(i)] for i in range(12)] + [[50.0], [51.0], [99.0]] + [[200.0]]
    labels = [0] * 12 + [1] * 3 + [2]
    with pytest.warns(CalibrantWarning, match=r"2 have not \(1, 2\)"):
        trust = TrustScore(alpha=0.67).fit(features, labels)
    assert trust.reference[trust.classes == 1][:, 0].tolist() == [51.0]  # the farthest pair goes
    assert trust.reference[trust.classes == 2][:, 0].tolist() == [200.0]


def test_a_point_on_a_sample_of_its_class_has_an_infinite_score_and_confidence_one():
    trust = TrustScore().fit([[0.0], [4.0]], [0, 1])
    assert trust.scores([[0.0]], [0]).tolist() == [math.inf]
    assert trust.scores([[0.0]], [1]).tolist() == [0.0]
    top = trust.top_label(Predictions.from_logits([[1.0, 0.0], [0.0, 1.0]], [0, 0]), [[0.0], [0.0]])
    assert top.confidence.tolist() == [1.0, 0.0]
    assert auroc(top) == 1.0


def test_a_point_on_samples_of_both_classes_is_as_near_to_either():
    trust = TrustScore().fit([[0.0], [0.0], [7.0]], [0, 1, 1])
    assert trust.scores([[0.0], [0.0]], [0, 1]).tolist() == [1.0, 1.0]
    assert trust([[0.0]], [0]).tolist() == [0.0]


@pytest.mark.usefixtures("search")
@pytest.mark.parametrize("d", [3, 40])
def test_duplicates_far_from_the_origin_are_at_distance_zero_exactly(d):
    samples = 1e6 + torch.randn(100, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trust = TrustScore().fit(samples, torch.arange(100) % 2)
    assert trust.scores(samples, torch.arange(100) % 2).isinf().all()


def test_a_class_that_no_sample_has_gets_score_zero_and_a_warning():
    trust = TrustScore().fit([[0.0], [4.0]], [0, 2], n_classes=4)
    with pytest.warns(CalibrantWarning, match=r"^2 samples .*\(1, 3\)"):
        scores = trust.scores([[1.0], [1.0], [1.0]], [0, 1, 3])
    assert scores.tolist() == [3.0, 0.0, 0.0]


def test_classes_without_samples_are_infinitely_far_and_never_the_nearest():
    trust = TrustScore().fit([[0.0], [4.0]], [0, 2])
    assert trust.class_distances([[1.0]]).tolist() == [[1.0, math.inf, 3.0]]
    assert trust.scores([[1.0]], [0]).tolist() == [3.0]


def test_the_confidence_is_a_monotone_map_of_the_score_into_the_unit_interval():
    train, labels = some_rows(200, 3, seed=0)
    points, truth = some_rows(150, 3, seed=1)
    logits = -((points[:, None] - np.random.default_rng(99).normal(size=(4, 3))) ** 2).sum(2)
    predictions = Predictions.from_logits(logits, truth)
    trust = TrustScore().fit(train, labels)
    top = trust.top_label(predictions, points)
    scores = trust.scores(points, predictions.predicted)
    assert torch.allclose(top.confidence, scores / (1 + scores))
    assert torch.equal(top.correct, predictions.correct)
    assert auroc(top) > 0.55


def test_half_and_single_precision_features_are_measured_in_double():
    train, labels = some_rows(100, 20, seed=0)
    points, predicted = some_rows(20, 20, seed=1)
    for dtype in (torch.float16, torch.float32):
        few, asked = torch.from_numpy(train).to(dtype), torch.from_numpy(points).to(dtype)
        scores = TrustScore().fit(few, labels).scores(asked, predicted)
        assert scores.dtype == torch.float64
        expected = oracle(few.double().numpy(), labels, asked.double().numpy(), predicted)
        np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("n", [10, 800])  # few points are not worth a tree
@pytest.mark.parametrize("d", [1, 8, 9, 60])
def test_each_search_finds_the_nearest_of_all_pairs(n, d):
    random = np.random.default_rng(0)
    points, reference = random.normal(size=(n, d)), random.normal(size=(1400, d))
    expected = np.sort(cdist(points, reference), axis=1)[:, :4]
    result = nearest_sample_distances(torch.from_numpy(points), torch.from_numpy(reference), 4)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ([[0.0], [1.0]], [1, 1], "got only class 1"),
        ([[0.0], [math.nan]], [0, 1], r"features must be finite; got nan at row 1 \(counting from 0\), column 0"),
        ([0.0, 1.0], [0, 1], r"features must have shape \(n, d\)"),
        (np.zeros((0, 2)), np.zeros(0, dtype=int), r"features must have shape \(n, d\)"),
        ([[0.0], [1.0]], [0, 1, 1], "same number of rows"),
        ([[0.0], [1.0]], [0.0, 1.0], "whole numbers of an integer type"),
        ([[0.0], [1.0]], [0, -1], r"labels must lie in 0..1; got -1 at row 1"),
    ],
)
def test_samples_that_cannot_be_fitted_on_are_reported(features, labels, message):
    with pytest.raises(InputError, match=message):
        TrustScore().fit(features, labels)


def test_labels_beyond_the_classes_are_reported():
    with pytest.raises(InputError, match=r"labels must lie in 0..1; got 2 at row 1"):
        TrustScore().fit([[0.0], [1.0]], [0, 2], n_classes=2)


@pytest.mark.parametrize(
    ("features", "predicted", "message"),
    [
        ([[0.0, 1.0]], [0], "1 columns.*got 2"),
        ([[math.inf]], [0], "features must be finite"),
        ([[0.0]], [2], r"predicted must lie in 0..1; got 2 at row 0.*n_classes"),
        ([[0.0]], [0, 1], "same number of rows"),
        ([[0.0]], [0.5], "whole numbers"),
    ],
)
def test_what_cannot_be_scored_is_reported(features, predicted, message):
    with pytest.raises(InputError, match=message):
        TrustScore().fit([[0.0], [1.0]], [0, 1]).scores(features, predicted)


@pytest.mark.parametrize("options", [{"alpha": -0.1}, {"alpha": 1.0}, {"alpha": math.nan}, {"neighbours": 0}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        TrustScore(**options)


def test_the_summary_gives_how_many_samples_stayed():
    trust = TrustScore(alpha=0.5, neighbours=1).fit([[0.0], [0.1], [8.0], [1.0], [1.1], [9.0]], [0, 0, 0, 1, 1, 1])
    assert trust.summary.method == "trust_score"
    assert trust.summary.settings == {"alpha": 0.5, "neighbours": 1}
    assert trust.summary.notes == ("4 of 6 samples are kept.",)


def test_what_it_holds_moves_with_the_module():
    trust = NeighbourConfidence(torch.zeros(2, 3), torch.tensor([0, 1]), n_classes=2)
    assert set(trust.state_dict()) == {"reference", "classes"}


@needs_cuda
@pytest.mark.parametrize("d", [3, 40])
def test_it_is_the_same_on_an_accelerator(d):
    train, labels = some_rows(160, d, seed=0)
    points, predicted = some_rows(70, d, seed=1)
    here = TrustScore(alpha=0.1).fit(train, labels)
    there = TrustScore(alpha=0.1).fit(torch.from_numpy(train).cuda(), labels)
    result = there(torch.from_numpy(points).cuda(), torch.from_numpy(predicted).cuda())
    assert result.is_cuda
    np.testing.assert_allclose(result.cpu().numpy(), here(points, predicted).numpy(), rtol=1e-9)
