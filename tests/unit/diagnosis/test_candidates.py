"""Runs grouped into candidates, and candidates called by what tells them apart."""

import pytest

from calibrant import catalogue
from calibrant.diagnosis import baseline_of, grouped, read_runs
from calibrant.diagnosis.runs import flattened, names_of, options_of
from calibrant.errors import UnknownNameError
from calibrant.losses import loss_settings


@pytest.fixture
def called(hands):
    """The names of candidates, from what they are trained with."""

    def names(*candidates):
        return names_of([options_of(hands.settings(loss, **options)) for loss, options in candidates])

    return names


def short(names):
    return [name.short for name in names]


def test_runs_that_differ_in_the_seed_alone_are_one_candidate(trained):
    folders = ["label_smoothing-1", "ce-1", "label_smoothing-0", "ce-0"]
    smoothing, plain = grouped(read_runs([trained[name] for name in folders]))
    assert (smoothing.name, smoothing.words) == ("label_smoothing(0.1)", "label smoothing 0.1")
    assert (plain.name, plain.words) == ("ce", "cross-entropy")
    assert smoothing.seeds == plain.seeds == (0, 1)
    assert [run.path.name for run in plain.runs] == ["ce-0", "ce-1"]


@pytest.mark.parametrize(
    "other",
    [{"loss": "focal"}, {"loss": "ce(reduction=sum)"}, {"mixup": 0.2}, {"weight_decay": 0.0}, {"model": "resnet20"},
     {"split": "half-test"}, {"epochs": 4}],
)  # fmt: skip
def test_runs_that_differ_in_anything_else_are_two_candidates(made, other):
    found = grouped(read_runs([made(), made(seed=1, **other)]))
    assert [len(each.runs) for each in found] == [1, 1]
    assert found[0].name != found[1].name


def test_an_option_is_named_where_it_differs_or_is_unusual(called):
    assert short(called(("ce", {}), ("label_smoothing", {}))) == ["ce", "label_smoothing"]
    assert short(called(("label_smoothing(smoothing=0.1)", {}))) == ["label_smoothing(0.1)"]
    both = called(("label_smoothing", {}), ("label_smoothing(smoothing=0.1)", {}))
    assert short(both) == ["label_smoothing(0.05)", "label_smoothing(0.1)"]
    assert short(called(("focal(detach_weight=true)", {}))) == ["focal(detach_weight=true)"]
    mixed = called(("focal(gamma=1)", {}), ("focal(gamma=3,detach_weight=true)", {}))
    assert short(mixed) == ["focal(1)", "focal(detach_weight=true)"]
    learned = called(
        ("meta_focal(objective=dece)", {}), ("meta_focal", {}), ("meta_focal(cross_entropy=0)", {}),
        ("meta_focal(objective=dece,cross_entropy=0)", {}),
    )  # fmt: skip
    assert short(learned) == [
        "meta_focal(dece)",
        "meta_focal(sece)",
        "meta_focal(cross_entropy=0)",
        "meta_focal(objective=dece, cross_entropy=0)",
    ]
    assert short(called(("meta_focal(learning_rate=1)", {}))) == ["meta_focal(learning_rate=1)"]
    assert learned[0].words.endswith("(gamma-Net, objective dece)")


def test_a_loss_inside_another_is_named_by_its_own_unusual_options(called):
    names = called(("mmce", {}), ("mmce(base=focal)", {}), ("mmce(base=focal(gamma=2))", {}))
    assert short(names) == ["mmce(base=ce)", "mmce(base=focal)", "mmce(base=focal, base.gamma=2)"]
    assert short(called(("ce", {}), ("mmce(base=focal(gamma=2))", {})))[1] == "mmce(base=focal, base.gamma=2)"
    assert short(called(("ce", {}), ("mmce(base=focal)", {})))[1] == "mmce(base=focal)"


def test_network_and_recipe_are_named_where_they_differ(called):
    assert short(called(("ce", {}), ("ce", {"mixup": 0.2}))) == ["ce", "ce mixup=0.2"]
    assert short(called(("ce", {"weight_decay": 1e-4}), ("ce", {"weight_decay": 5e-4}))) == [
        "ce weight_decay=0.0001",
        "ce weight_decay=0.0005",
    ]
    assert short(called(("ce", {}), ("ce", {"model": "resnet20"}))) == ["digits_cnn ce", "resnet20 ce"]
    assert short(called(("ce", {}), ("ce", {"weight_decay": 0.0})))[1] == "ce weight_decay=0"
    assert short(called(("ce", {"mixup": 1.0}))) == ["ce"]  # which all candidates have


def test_words_read_like_a_part_of_a_sentence(called):
    names = called(
        ("ce", {"mixup": 1.0}),
        ("focal(gamma=2)", {}),
        ("brier", {}),
        ("mmce", {}),
        ("label_smoothing(smoothing=0.1)", {}),
    )
    assert [name.words for name in names] == [
        "cross-entropy with mixup 1",
        "focal loss (gamma 2)",
        "Brier loss",
        "maximum mean calibration error",
        "label smoothing 0.1",
    ]
    several = called(("focal(gamma=2,detach_weight=true)", {"weight_decay": 0.01}), ("ce", {"model": "resnet20"}))
    assert several[0].words == "focal loss (gamma 2, detach_weight true) with weight decay 0.01 on digits_cnn"
    assert several[1].words == "cross-entropy with weight decay 0.0005 on resnet20"


def test_names_are_different_even_where_only_hidden_options_differ(hands):
    one = options_of(hands.settings())
    names = names_of([one, one | {"data_digest": "fedcba9876543210"}])
    assert short(names) == ["ce [data_digest=0123456789abcdef]", "ce [data_digest=fedcba9876543210]"]
    off = names_of([one | {"recipe.clip": None}, one | {"recipe.clip": False}])
    assert len(set(short(off))) == 2


def test_a_loss_that_the_catalogue_does_not_know_is_called_by_its_name(hands):
    one = {path: value for path, value in options_of(hands.settings()).items() if not path.startswith("loss.")}
    names = names_of([one | {"loss.loss": "mine", "loss.strength": strength} for strength in (2.0, 3.0)])
    assert [tuple(name) for name in names] == [("mine(2)", "mine (strength 2)"), ("mine(3)", "mine (strength 3)")]


def test_every_loss_has_a_name_of_its_own(hands):
    losses = {**catalogue.losses, **catalogue.meta_losses}
    one = options_of(hands.settings())
    rest = {path: value for path, value in one.items() if not path.startswith("loss.")}
    names = names_of([rest | flattened(loss_settings(catalogue.parse_any_loss(name)), "loss.") for name in losses])
    assert short(names) == list(losses)


def test_the_reference_is_the_named_one_or_plain_cross_entropy_or_the_first(made):
    candidates = grouped(read_runs([made("focal"), made(mixup=0.2), made(), made(clip=1.0)]))
    assert baseline_of(candidates).name == candidates[2].name == "ce"
    assert baseline_of(candidates, "focal").name == "focal"
    assert baseline_of(candidates[:2]).name == "focal"
    with pytest.raises(UnknownNameError, match=r"a candidate.*'focla'"):
        baseline_of(candidates, "focla")
