"""Laws that every loss keeps.

One exported by ``calibrant.losses`` is found and tested here by itself, and so are those that the page "Adding a loss"
teaches.
"""

import copy
import inspect
import itertools
import json
import re

import numpy as np
import pytest
import torch
from markdown_blocks import classes_taught_by
from torch.nn import functional as F

from calibrant import catalogue
from calibrant import losses as losses_module
from calibrant.errors import InputError
from calibrant.losses import (
    ChangesWithEpoch,
    FocalLoss,
    NeedsSamples,
    PenalisedLoss,
    RowLoss,
    default_settings,
    loss_settings,
)
from calibrant.paper import Paper
from calibrant.training import MixedBatch

TAUGHT = classes_taught_by("adding-a-loss.md", torch.nn.Module)
KINDS = {name: type(loss) for name, loss in catalogue.losses.items()} | {kind.name: kind for kind in TAUGHT}
# Options that make another function of a loss: what is about its values holds for these too.
VARIANTS = [
    "avuc(threshold=0.5,from_epoch=0)",
    "crl(score=entropy,normalisation=min-max)",
    "crl(score=margin)",
    "dual_focal(gamma=0.1)",
    "flsd(gammas=[0.9,0.1])",
    "focal(gamma=0.01)",
    "focal(gamma=0.5)",
    "focal(gamma=1)",
    "focal_schedule(gammas=[0.2],starts=[0])",
    "inverse_focal(gamma=0.5)",
    "inverse_focal(gamma=3.5)",
    "logit_norm(p=2)",
    "logit_norm(p=3)",
    "mbls(margin=3,weight=0.7)",
    "mmce(normalisation=legacy)",
    "mmce(normalisation=unweighted)",
    "sb_ece(norm=l1)",
    "sece(accuracy=hard)",
    "soft_avuc(temperature=5)",
    "soft_avuc(threshold=0.1,temperature=0.05)",
]
ROW = [name for name, kind in KINDS.items() if issubclass(kind, RowLoss)]
PENALISED = [name for name, kind in KINDS.items() if issubclass(kind, PenalisedLoss)]
SOFT = [name for name, kind in KINDS.items() if kind.takes_soft_labels]
WITH_EPOCHS = [name for name, kind in KINDS.items() if issubclass(kind, ChangesWithEpoch)]

# The options that make each loss the cross-entropy.
LIMITS = {
    "avuc": ("avuc(weight=0)", "avuc(from_epoch=6)"),
    "ce": ("ce",),
    "cpc": ("cpc(discrimination_weight=0,exclusion_weight=0)",),
    "crl": ("crl(weight=0)",),
    "dca": ("dca(weight=0)",),
    "dece": ("dece(weight=0)",),
    "dual_focal": ("dual_focal(gamma=0)",),
    "entropy": ("entropy(weight=0)",),
    "flsd": ("flsd(gammas=[0,0])",),
    "focal": ("focal(gamma=0)", "focal(gamma=0,detach_weight=true)"),
    "focal_schedule": ("focal_schedule(gammas=[0,5],starts=[0,100])",),
    "gce": ("gce(q=0)",),
    "inverse_focal": ("inverse_focal(gamma=0)", "inverse_focal(gamma=0,detach_weight=true)"),
    "label_smoothing": ("label_smoothing(smoothing=0)",),
    "logit_norm": ("logit_norm(weight=0)",),
    "mbls": ("mbls(weight=0)", "mbls(margin=1000)"),
    "mdca": ("mdca(weight=0)",),
    "mmce": ("mmce(weight=0)",),
    "sb_ece": ("sb_ece(weight=0)",),
    "sece": ("sece(weight=0)",),
    "soft_avuc": ("soft_avuc(weight=0)",),
    "squared_gap": ("squared_gap(weight=0)",),
}
NEVER_THE_CROSS_ENTROPY = {"brier": "has no options: it is another proper loss"}

DEPEND_ON_ROW_ORDER = {"crl": "compares each row with the next, and the last with the first"}
# A class that cannot be has a logit of -inf. To the others such a sample is one with fewer classes.
NOT_FINITE_WITH_A_MASKED_CLASS = {
    "cpc": "asks that wrong classes draw",
    "label_smoothing": "wants some probability of every class",
    "logit_norm": "is the size of the logits",
    "mbls": "is how far logits lie behind the largest",
}
SEE_THE_LEVEL_OF_LOGITS = {"logit_norm": "a shift changes the size of the logits, and no probability"}


@pytest.fixture(autouse=True)
def taught_losses_are_exported(monkeypatch):
    for kind in TAUGHT:
        monkeypatch.setattr(losses_module, kind.__name__, kind, raising=False)
    monkeypatch.setattr(losses_module, "__all__", [*losses_module.__all__, *(kind.__name__ for kind in TAUGHT)])
    for registry in (catalogue.losses, catalogue._any_losses):
        monkeypatch.setattr(registry, "_kinds", {})  # collected anew


def each_of(names):
    return pytest.mark.parametrize("name", list(names))


each_loss = each_of(KINDS)
each_form = pytest.mark.parametrize("text", [*KINDS, *VARIANTS])
each_base_class = each_of(["focal", "dca"])  # one loss of each: what is refused is refused by the base class


def ready(loss, rows):
    """The loss as a training loop has it in the sixth epoch: it knows the samples, and every third was always correct.

    In evaluation mode, so that a second call sees the same past.
    """
    if isinstance(loss, NeedsSamples):
        loss.remember(rows)
        loss.look_at(torch.arange(rows))
        for epoch in range(5):
            loss.begin_epoch(epoch)
            loss(F.one_hot(torch.arange(rows) % 3, 3).double(), torch.zeros(rows, dtype=torch.int64))
    if isinstance(loss, ChangesWithEpoch):
        loss.begin_epoch(5)  # the first with the penalty of avuc
    return loss.eval()


def made(name, rows=24, **options):
    return ready(KINDS[name](**options), rows)


def parsed(text, rows=24):
    return ready(catalogue.losses.parse(text), rows)


def batch(n=24, k=5, *, dtype=torch.float64, seed=0):
    """Logits that are too sure, some of them by far, and labels: predictions are right and wrong."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    logits[::4] *= 4  # beyond every margin within which a loss sees nothing
    labels = torch.multinomial((logits / 4).softmax(1), 1, generator=generator)[:, 0]
    return logits.to(dtype), labels


def value_and_slope(loss, logits, labels):
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def assert_same(first, second, **tolerance):
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, **(tolerance or {"rtol": 1e-9, "atol": 1e-12}))


def as_text(value):
    if isinstance(value, RowLoss):
        return value.name
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def awkward():
    """Batches that make a gradient NaN elsewhere, by what is special about them."""
    logits, labels = batch(8)
    any_labels = torch.arange(8) % 5
    return {
        "one row, right": (logits[:1], logits[:1].argmax(1)),
        "one row, wrong": (logits[:1], logits[:1].argmin(1)),
        "all right": (logits, logits.argmax(1)),
        "all wrong": (logits, logits.argmin(1)),
        "one class present": (logits, torch.full((8,), 3)),
        "certain and right": (1e4 * F.one_hot(any_labels, 5), any_labels),
        "certain and wrong": (1e4 * F.one_hot(any_labels, 5), (any_labels + 1) % 5),
        "tied at 1e4 to either side": (1e4 * logits.sign(), any_labels),
        "the last bit of certainty": (17.0 * F.one_hot(any_labels, 5), any_labels),
        "all tied": (0 * logits, any_labels),
        "the true class tied with another": (F.one_hot(any_labels, 5) + F.one_hot((any_labels + 1) % 5, 5), any_labels),
        "the same row eight times": (logits[:1].repeat(8, 1), any_labels),
        "two classes": (logits[:, :2], labels % 2),
        "extremes": (
            torch.tensor(
                [
                    [1e4, -1e4, 0.0],
                    [-1e4, 1e4, 0.0],
                    [-1e4, -1e4, 1e4],  # p_y is 0, and so is that of another class
                    [1e4, 1e4, 1e4],
                    [17.0, 0.0, 0.0],  # 1 - p_y is the last bit of float32
                    [-0.0, 1e-38, 1e-45],
                ]
            ),
            torch.zeros(6, dtype=torch.int64),
        ),
        "of every kind": (torch.cat([1e4 * logits.sign(), logits, 0 * logits]), torch.arange(24) % 5),
    }


AWKWARD = awkward()


class TestFacts:
    def test_there_are_losses(self):
        assert len(KINDS) > 15
        assert {kind.name for kind in TAUGHT} >= {"gce", "squared_gap"}
        assert set(ROW) | set(PENALISED) == set(KINDS)

    @each_loss
    def test_each_says_what_it_is(self, name):
        loss = KINDS[name]()
        assert loss.name == name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert loss.title
        assert isinstance(loss.paper, Paper)
        assert loss.paper.url
        assert getattr(KINDS[name], "__final__", False), "classes are abstract or final"

    @each_loss
    def test_each_documents_its_formula(self, name):
        assert re.search(r"^Formula: \S", inspect.cleandoc(KINDS[name].__doc__), flags=re.MULTILINE)

    @each_loss
    def test_each_keeps_its_options_which_are_given_by_name(self, name):
        for option in inspect.signature(KINDS[name]).parameters.values():
            assert option.kind is inspect.Parameter.KEYWORD_ONLY
            if option.name != "base":
                assert getattr(KINDS[name](), option.name) == option.default

    @pytest.mark.parametrize("fact", ["title", "paper"])
    def test_no_two_have_the_same(self, fact):
        assert len({getattr(kind, fact) for kind in KINDS.values()}) == len(KINDS)


class TestDropIn:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @each_loss
    def test_it_gives_one_number_in_the_type_of_the_logits(self, name, dtype):
        value, slope = value_and_slope(made(name), *batch(dtype=dtype))
        assert (value.shape, value.dtype) == ((), dtype)
        assert (slope.shape, slope.dtype) == ((24, 5), dtype)
        assert value.isfinite()
        assert slope.abs().max() > 0

    @each_form
    def test_float32_gives_nearly_what_float64_does(self, text):
        logits, labels = batch(dtype=torch.float32)
        narrow, wide = (value_and_slope(parsed(text), each, labels) for each in (logits, logits.double()))
        assert_same([each.double() for each in narrow], wide, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @each_loss
    def test_half_precision_is_worked_in_float32(self, name, dtype):
        logits, labels = batch(dtype=dtype)
        value, slope = value_and_slope(made(name), logits, labels)
        expected, expected_slope = value_and_slope(made(name), logits.float(), labels)
        assert value.dtype == torch.float32
        assert torch.equal(value, expected)
        assert torch.equal(slope, expected_slope.to(dtype))

    @each_loss
    def test_autocast_does_not_reach_into_it(self, name):
        loss, (logits, labels) = made(name), batch(dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            inside = value_and_slope(loss, logits, labels)
        assert_same(inside, value_and_slope(loss, logits, labels), rtol=0, atol=0)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    @each_loss
    def test_it_may_be_cast_with_the_model_it_is_part_of(self, name, dtype):
        loss, (logits, labels) = made(name), batch(dtype=torch.float32)
        assert_same([copy.deepcopy(loss).to(dtype)(logits, labels)], [loss(logits, labels)], rtol=0, atol=0)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
    @each_loss
    def test_labels_may_be_of_any_whole_type(self, name, dtype):
        loss, (logits, labels) = made(name), batch()
        assert torch.equal(loss(logits, labels.to(dtype)), loss(logits, labels))

    @each_loss
    def test_logits_of_many_places_are_as_many_samples(self, name):
        logits, labels = batch()
        placed = logits.view(3, 2, 4, 5).permute(0, 3, 1, 2)
        value, slope = value_and_slope(made(name), placed, labels.view(3, 2, 4))
        expected, expected_slope = value_and_slope(made(name), logits, labels)
        assert torch.equal(value, expected)
        assert torch.equal(slope.permute(0, 2, 3, 1).reshape(24, 5), expected_slope)

    @each_loss
    def test_what_it_is_given_is_left_as_it_was(self, name):
        logits, labels = batch()
        before = logits.clone(), labels.clone()
        made(name)(logits, labels)
        assert_same((logits, labels), before, rtol=0, atol=0)

    @pytest.mark.parametrize(
        ("logits", "labels", "message"),
        [
            (torch.zeros(0, 5), torch.zeros(0).long(), r"got .* \(0, 5\)"),
            (torch.zeros(2, 5, 0), torch.zeros(2, 0).long(), r"got .* \(2, 5, 0\)"),
            (torch.zeros(2, 1), torch.zeros(2).long(), "two classes"),
            (torch.zeros(5), torch.zeros(()).long(), r"of shape \(n, k\)"),
            (torch.zeros(2, 5).long(), torch.zeros(2).long(), "logits must be floating numbers"),
            ({"logits": torch.zeros(2, 5)}, torch.zeros(2).long(), "must be tensors; got dict and Tensor"),
            (torch.zeros(2, 5), [0, 1], "must be tensors; got Tensor and list"),
            (torch.zeros(2, 5), torch.zeros(3).long(), r"labels must have shape \(2,\)"),
            (torch.zeros(2, 5, 3), torch.zeros(2).long(), r"labels must have shape \(2, 3\)"),
            (torch.zeros(2, 5), torch.tensor([0, 5]), r"labels must lie in 0\.\.4, .* got 5 at row 1"),
            (torch.zeros(2, 5), torch.tensor([-100, 0]), "If -100 marks .* ignore_index=-100"),
        ],
    )
    @each_base_class
    def test_what_is_no_batch_is_refused_with_words(self, name, logits, labels, message):
        with pytest.raises(InputError, match=message):
            made(name, 2)(logits, labels)


class TestClassWeights:
    @pytest.mark.parametrize("name", ROW)
    def test_a_class_of_weight_2_counts_as_if_its_samples_were_there_twice(self, name):
        logits, labels = batch()
        times = torch.tensor([1, 2, 0, 1, 3])[labels]
        repeated = logits.repeat_interleave(times, 0), labels.repeat_interleave(times)
        weighted = made(name, class_weights=(1.0, 2.0, 0.0, 1.0, 3.0))
        expected = made(name, int(times.sum()))(*repeated)
        torch.testing.assert_close(weighted(logits, labels), expected)
        alone = made(name, class_weights=(1.0, 2.0, 0.0, 1.0, 3.0), reduction="none")(logits, labels)
        torch.testing.assert_close(alone, times * made(name, reduction="none")(logits, labels))

    @pytest.mark.parametrize("wrong", [3, 0.5, "heavy"])
    def test_they_are_several_numbers(self, wrong):
        with pytest.raises(InputError, match="class_weights must be a tuple"):
            FocalLoss(class_weights=wrong)

    @pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
    def test_they_may_be_a_list_a_tensor_or_an_array(self, kind):
        loss = FocalLoss(class_weights=kind([1.0, 2.0, 0.5, 1.0, 3.0]))
        assert loss.class_weights == (1.0, 2.0, 0.5, 1.0, 3.0)
        assert all(type(weight) is float for weight in loss.class_weights)

    def test_they_follow_the_logits_to_another_device(self):
        logits, labels = (values.to("meta") for values in batch())
        assert made("ce", class_weights=(1.0, 2.0, 0.0, 1.0, 3.0))(logits, labels).device.type == "meta"

    def test_cross_entropy_is_that_of_torch_with_weights_and_ignored_samples(self):
        logits, labels = batch()
        weights = (1.0, 2.0, 0.5, 1.0, 3.0)
        given = {"weight": torch.tensor(weights, dtype=torch.float64), "ignore_index": 3}
        ours = made("ce", class_weights=weights, ignore_index=3)(logits, labels)
        torch.testing.assert_close(ours, F.cross_entropy(logits, labels, **given))

    def test_the_base_of_a_penalised_loss_has_them_and_settings_keep_them(self):
        logits, labels = batch()
        text = "mmce(weight=0,base=ce(class_weights=[1,2,0,1,3]))"
        loss = catalogue.losses.parse(text)
        expected = F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2, 0, 1, 3], dtype=torch.float64))
        torch.testing.assert_close(loss(logits, labels), expected)
        assert loss_settings(loss)["base"]["class_weights"] == [1.0, 2.0, 0.0, 1.0, 3.0]
        assert "class_weights" not in loss_settings(FocalLoss())
        assert list(FocalLoss(class_weights=(1.0, 2.0)).state_dict()) == list(FocalLoss().state_dict())

    def test_soft_labels_have_the_mean_of_their_classes_weights(self):
        logits, labels = batch()
        hard = F.one_hot(labels, 5).double()
        loss = made("ce", class_weights=(1.0, 2.0, 0.0, 1.0, 3.0))
        torch.testing.assert_close(loss(logits, hard), loss(logits, labels))

    @pytest.mark.parametrize(
        ("weights", "words"),
        [((1.0, 2.0), "5 numbers.* got 2"), ((1.0, -1.0), "class_weights"), ((0.0, 0.0), "above 0")],
    )
    def test_wrong_weights_are_refused(self, weights, words):
        with pytest.raises(InputError, match=words):
            made("focal", class_weights=weights)(*batch())


class TestReductions:
    @each_loss
    def test_the_sum_is_the_mean_times_the_samples(self, name):
        mean, summed = (value_and_slope(made(name, reduction=how), *batch()) for how in ("mean", "sum"))
        assert_same([24 * each for each in mean], summed)

    @each_of(ROW)
    def test_each_sample_has_the_loss_it_has_alone(self, name):
        logits, labels = batch()
        losses = made(name, reduction="none")(logits, labels)
        alone = torch.stack([made(name, 1)(logits[at : at + 1], labels[at : at + 1]) for at in range(24)])
        assert losses.shape == (24,)
        assert_same([losses, losses.mean()], [alone, made(name)(logits, labels)])
        placed = made(name, reduction="none")(logits.view(3, 8, 5).movedim(2, 1), labels.view(3, 8))
        assert torch.equal(placed, losses.view(3, 8))

    @each_of(PENALISED)
    def test_a_penalty_on_the_batch_has_no_loss_of_each_sample(self, name):
        with pytest.raises(InputError, match=f"reduction of {name}, whose penalty is not defined per sample, must be"):
            KINDS[name](reduction="none")

    @pytest.mark.parametrize("options", [{"reduction": "sum"}, {"ignore_index": 2}])
    def test_the_base_leaves_reduction_and_ignored_samples_to_the_loss_around_it(self, options):
        with pytest.raises(InputError, match=r"base of dca must leave .* Give them to dca instead"):
            KINDS["dca"](base=FocalLoss(**options))

    def test_the_base_is_a_loss_of_single_samples(self):
        with pytest.raises(InputError, match="base must be a loss of single samples"):
            KINDS["dca"](base=KINDS["mmce"]())

    @each_of(PENALISED)
    def test_the_penalty_comes_on_top_of_any_base(self, name):
        logits, labels = batch()
        on_top = [made(name, base=base)(logits, labels) - base(logits, labels) for base in (FocalLoss(), KINDS["ce"]())]
        assert_same(on_top[:1], on_top[1:])
        assert on_top[0] > 0
        loss = made(name, weight=0.3)
        assert_same([loss(logits, labels)], [F.cross_entropy(logits, labels) + 0.3 * loss.penalty(logits, labels)])


class TestIgnoredRows:
    # Also a class of its own, as segmentation data has it.
    @pytest.mark.parametrize("index", [-100, 2, 255])
    @each_loss
    def test_they_count_as_if_they_were_not_there(self, name, index):
        logits, labels = batch()
        ignored = (torch.arange(24) % 3 == 1) | (labels == index)
        kept = int((~ignored).sum())
        value, slope = value_and_slope(made(name, kept, ignore_index=index), logits, labels.masked_fill(ignored, index))
        expected, expected_slope = value_and_slope(made(name, kept), logits[~ignored], labels[~ignored])
        assert torch.equal(value, expected)
        assert torch.equal(slope[~ignored], expected_slope)
        assert slope[ignored].abs().max() == 0

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @each_loss
    def test_a_batch_of_nothing_else_has_loss_and_slope_0(self, name, reduction):
        logits, labels = batch(4)
        loss = made(name, 4, ignore_index=-1, reduction=reduction)
        value, slope = value_and_slope(loss, logits, labels.new_full((4,), -1))
        assert value == 0
        assert torch.equal(slope, torch.zeros(4, 5, dtype=torch.float64))

    @each_of(ROW)
    def test_each_has_0_where_samples_are_not_reduced(self, name):
        logits, labels = batch(6)
        losses = made(name, ignore_index=-1, reduction="none")(logits, labels.index_fill(0, torch.tensor([1, 4]), -1))
        every = made(name, reduction="none")(logits, labels)
        assert torch.equal(losses, every.index_fill(0, torch.tensor([1, 4]), 0))

    @each_loss
    def test_a_label_of_a_narrow_type_is_not_taken_for_a_negative_one(self, name):
        logits, labels = batch(8, 200)
        labels[0] = 156  # which is -100 in eight bits
        loss = made(name, 8, ignore_index=-100)
        assert torch.equal(loss(logits, labels.to(torch.uint8)), loss(logits, labels))

    @each_base_class
    def test_other_labels_out_of_range_are_still_refused(self, name):
        with pytest.raises(InputError, match=r"labels must lie in 0\.\.4"):
            made(name, 2, ignore_index=-100)(torch.zeros(2, 5), torch.tensor([0, -1]))


class TestSlopes:
    @each_form
    def test_they_are_those_of_finite_differences(self, text):
        logits, labels = batch(6, 4)
        loss = parsed(text, 6)
        assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_(), eps=1e-7, atol=1e-4)

    @each_loss
    def test_they_have_slopes_themselves(self, name):
        # Learning the options of a loss by gradient needs them.
        logits, labels = batch(4, 3)
        loss = made(name, 4)
        assert torch.autograd.gradgradcheck(
            lambda z: loss(z, labels), logits.requires_grad_(), eps=1e-7, atol=1e-3, rtol=1e-3
        )

    @each_form
    def test_value_and_slope_are_finite_on_awkward_batches(self, text):
        dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        for (case, (logits, labels)), dtype in itertools.product(AWKWARD.items(), dtypes):
            value, slope = value_and_slope(parsed(text, len(labels)), logits.to(dtype), labels)
            assert value.isfinite(), (case, dtype)
            assert slope.isfinite().all(), (case, dtype)

    @pytest.mark.parametrize("text", [text for text in [*KINDS, *VARIANTS] if text.split("(")[0] in PENALISED])
    def test_no_penalty_is_steep_enough_to_throw_a_network_off(self, text):
        for (case, (logits, labels)), dtype in itertools.product(AWKWARD.items(), (torch.float64, torch.float32)):
            leaf = logits.to(dtype).requires_grad_()
            penalty = parsed(text, len(labels)).penalty(leaf, labels)
            (slope,) = torch.autograd.grad(penalty, leaf)
            assert 0 <= penalty.item() < 30, (case, dtype)
            assert slope.abs().max() < 20, (case, dtype)

    @each_loss
    def test_a_masked_class_leaves_value_and_slope_finite(self, name):
        logits, labels = batch()
        logits[torch.arange(24), (labels + 1) % 5] = -torch.inf
        logits[::2, :][torch.arange(12), (labels[::2] + 2) % 5] = -torch.inf
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            value, slope = value_and_slope(made(name), logits.to(dtype), labels)
            is_finite = bool(value.isfinite()) and bool(slope.isfinite().all())
            assert is_finite == (name not in NOT_FINITE_WITH_A_MASKED_CLASS), dtype
            # Far enough behind is as good as masked.
            if is_finite:
                behind = value_and_slope(made(name), logits.clamp(min=-1e4).to(dtype), labels)
                assert_same([value, slope], behind, rtol=1e-6, atol=1e-7)


class TestSymmetries:
    @each_of(name for name in KINDS if name not in DEPEND_ON_ROW_ORDER)
    def test_the_order_of_the_samples_does_not_matter(self, name):
        logits, labels = batch()
        order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
        assert_same([made(name)(logits[order], labels[order])], [made(name)(logits, labels)])

    @each_of(DEPEND_ON_ROW_ORDER)
    def test_where_neighbours_are_compared_the_samples_may_only_be_turned_round(self, name):
        loss, (logits, labels) = made(name), batch()
        expected = loss(logits, labels)
        for order, same in ((torch.arange(24).roll(7), True), (torch.arange(24).view(2, 12).T.reshape(-1), False)):
            loss.look_at(order)
            assert torch.isclose(loss(logits[order], labels[order]), expected, rtol=1e-9) == same

    @each_form
    def test_the_numbers_of_the_classes_do_not_matter(self, text):
        logits, labels = batch()
        order = torch.tensor([3, 0, 4, 1, 2])
        assert_same([parsed(text)(logits[:, order], order.argsort()[labels])], [parsed(text)(logits, labels)])

    @each_loss
    def test_only_the_differences_of_logits_matter(self, name):
        logits, labels = batch()
        shifted = made(name)(logits + torch.linspace(-30, 30, 24)[:, None], labels)
        same = torch.isclose(shifted, made(name)(logits, labels), rtol=1e-9)
        assert same == (name not in SEE_THE_LEVEL_OF_LOGITS)


class TestSoftLabels:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @each_of(SOFT)
    def test_one_hot_ones_are_the_hard_ones(self, name, dtype):
        logits, labels = batch()
        hot = F.one_hot(labels, 5).to(dtype)
        expected = value_and_slope(made(name), logits, labels)
        assert_same(value_and_slope(made(name), logits, hot), expected)
        placed = made(name)(logits.view(3, 8, 5).movedim(2, 1), hot.view(3, 8, 5).movedim(2, 1))
        assert_same([placed], expected[:1])

    @each_of(name for name in KINDS if name not in SOFT)
    def test_they_are_refused_with_words_where_they_mean_nothing(self, name):
        logits, labels = batch()
        with pytest.raises(InputError, match=rf"{name} must have whole-numbered labels, .* of shape \(24, 5\)"):
            made(name)(logits, F.one_hot(labels, 5).double())

    @each_of(name for name in PENALISED if name in SOFT)
    def test_they_are_refused_where_they_mean_nothing_to_the_base(self, name):
        with pytest.raises(InputError, match=f"{name} must have whole-numbered labels"):
            made(name, base=FocalLoss())(torch.zeros(2, 5), torch.full((2, 5), 0.2))

    @each_of(SOFT)
    def test_none_of_them_can_be_ignored(self, name):
        with pytest.raises(InputError, match="ignore_index must be None with soft labels"):
            made(name, ignore_index=-1)(torch.zeros(2, 5), torch.full((2, 5), 0.2))


class TestLimits:
    def test_every_loss_has_one_or_says_why_not(self):
        assert set(LIMITS) | set(NEVER_THE_CROSS_ENTROPY) == set(KINDS), "a new loss must be put into one of the tables"
        assert not set(LIMITS) & set(NEVER_THE_CROSS_ENTROPY)

    @pytest.mark.parametrize("text", [text for texts in LIMITS.values() for text in texts])
    def test_there_it_is_the_cross_entropy(self, text):
        expected = value_and_slope(torch.nn.CrossEntropyLoss(), *batch())
        assert_same(value_and_slope(ready(catalogue.losses.parse(text), 24), *batch()), expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("text", [text for name in ROW for text in LIMITS.get(name, ()) if name != "gce"])
    def test_there_a_loss_of_samples_is_torchs_to_the_bit(self, text, dtype):
        logits, labels = batch(100, 9, dtype=dtype)
        loss = parsed(text)
        value, slope = value_and_slope(lambda z, y: loss.rows(z, y).sum(), logits, labels)
        expected = value_and_slope(lambda z, y: F.cross_entropy(z, y, reduction="sum"), logits, labels)[1]
        assert torch.equal(loss.rows(logits, labels), F.cross_entropy(logits, labels, reduction="none"))
        assert torch.equal(slope, expected)
        assert value > 0

    @each_of(name for name in KINDS if name != "ce")
    def test_elsewhere_it_is_not(self, name):
        assert abs(made(name)(*batch()) - F.cross_entropy(*batch())) > 0.01


class TestSettings:
    @each_loss
    def test_every_option_can_be_written_as_text(self, name):
        usual = KINDS[name]()
        texts = [f"{option}={as_text(getattr(usual, option))}" for option in inspect.signature(KINDS[name]).parameters]
        for text in [*texts, ",".join(texts)]:
            read = catalogue.losses.parse(f"{name}({text})")
            assert type(read) is KINDS[name]
            assert loss_settings(read) == loss_settings(usual)

    @each_loss
    def test_its_settings_can_be_kept_in_a_file(self, name):
        settings = loss_settings(KINDS[name](ignore_index=-100, reduction="sum"))
        assert json.loads(json.dumps(settings, allow_nan=False)) == settings
        assert (settings["loss"], settings["ignore_index"], settings["reduction"]) == (name, -100, "sum")

    def test_the_defaults_are_known_without_building_a_loss(self):
        for kind in [*KINDS.values(), *catalogue.meta_losses.kinds.values()]:
            assert default_settings(kind) == loss_settings(kind())

    def test_a_loss_may_have_an_init_of_its_own(self):
        class Doubled(RowLoss):
            name = "doubled"

            def __init__(self, *, factor: float = 2.0, reduction: str = "mean") -> None:
                super().__init__(reduction=reduction)
                self.factor = factor

            def rows(self, logits, labels):
                return self.factor * F.cross_entropy(logits, labels, reduction="none")

        logits, labels = batch()
        assert_same([Doubled(reduction="sum")(logits, labels)], [48 * F.cross_entropy(logits, labels)])
        assert loss_settings(Doubled(factor=3.0)) == {"loss": "doubled", "factor": 3.0, "reduction": "mean"}
        with pytest.raises(InputError, match="reduction"):
            Doubled(reduction="median")

    @each_loss
    def test_a_copy_gives_the_same_and_shares_nothing(self, name):
        loss = made(name)
        again = copy.deepcopy(loss)
        assert torch.equal(again(*batch()), loss(*batch()))
        ours, theirs = ({tensor.data_ptr() for tensor in each.state_dict().values()} for each in (loss, again))
        assert not ours & theirs

    @each_loss
    def test_its_state_resumes_in_another_one(self, name):
        loss, other = made(name), made(name).train()
        if name in WITH_EPOCHS:
            loss.begin_epoch(300)
        if isinstance(loss, NeedsSamples):
            loss.train()(*batch())
        other.load_state_dict(loss.state_dict())
        assert torch.equal(other.eval()(*batch()), loss.eval()(*batch()))


class TestHooks:
    @each_of(WITH_EPOCHS)
    def test_an_epoch_is_written_where_a_captured_graph_looks(self, name):
        loss = made(name)
        before = {key: tensor.data_ptr() for key, tensor in loss.state_dict().items()}
        loss.begin_epoch(300)
        assert before
        assert {key: tensor.data_ptr() for key, tensor in loss.state_dict().items()} == before

    @pytest.mark.parametrize("epoch", [-1, 0.5])
    @each_of(WITH_EPOCHS)
    def test_what_is_no_epoch_is_refused(self, name, epoch):
        with pytest.raises(InputError, match="epoch must be"):
            made(name).begin_epoch(epoch)


class TestCompiled:
    @each_form
    def test_nothing_waits_for_the_data(self, text):
        # Tensors without data refuse whatever would have to read it, as a captured graph does.
        loss = parsed(text, 8).to("meta")
        if isinstance(loss, NeedsSamples):
            loss.look_at(torch.empty(8, dtype=torch.int64, device="meta"))
        logits, labels = torch.empty(8, 5, device="meta"), torch.empty(8, dtype=torch.int64, device="meta")
        value, slope = value_and_slope(loss, logits, labels)
        assert (value.shape, slope.shape) == ((), (8, 5))

    @each_form
    def test_it_compiles_to_one_graph_with_the_same_value_that_ignores_no_label_unasked(self, text):
        torch.compiler.reset()
        loss, (logits, labels) = parsed(text), batch(dtype=torch.float32)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        assert_same([compiled(logits, labels)], [loss(logits, labels)], rtol=1e-5, atol=0)
        # Labels are not checked there, and torch's own cross-entropy counts one of -100 as a sample with a loss of 0.
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)|index"):
            compiled(logits, labels.index_fill(0, torch.tensor([3]), -100))


class TestMixup:
    @each_of(name for name, kind in KINDS.items() if not issubclass(kind, NeedsSamples))
    def test_it_mixes_any_loss_that_follows_no_samples(self, name):
        logits, labels = batch(dtype=torch.float32)
        partners, loss = torch.arange(24).roll(5), made(name)
        plain, swapped = loss(logits, labels), loss(logits, labels[partners])
        for share, expected in ((1.0, plain), (0.0, swapped), (0.25, 0.25 * plain + 0.75 * swapped)):
            mixed = MixedBatch.of(logits, labels, partners, torch.tensor(share))
            assert_same([mixed.loss(loss, logits)], [expected], rtol=0 if share in {0, 1} else 1e-6, atol=0)

    def test_a_share_of_1_leaves_the_inputs_whole(self):
        inputs, labels = batch(dtype=torch.float32)
        mixed = MixedBatch.of(inputs, labels, torch.arange(24).roll(5), torch.tensor(1.0))
        assert torch.equal(mixed.inputs, inputs)
