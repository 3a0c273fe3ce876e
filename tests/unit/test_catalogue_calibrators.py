"""Calibrators by name, with options and in chains, as a person writes them."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import pytest

from calibrant import calibrators
from calibrant.calibrators import Calibrator, Chain, DensityRatioCalibration, DoNothing, TemperatureScaling
from calibrant.catalogue import (
    all_calibrators,
    all_feature_calibrators,
    all_metrics,
    find_any_calibrator,
    find_calibrator,
)
from calibrant.errors import InputError, UnknownNameError
from calibrant.method_text import parse_method


@final
@dataclass(frozen=True)
class Everything(Calibrator):
    """One option of every type."""

    name: ClassVar[str] = "everything"
    title: ClassVar[str] = "Every type of option"

    way: Literal["up", "down", 3] = "up"
    count: int = 1
    weight: float = 1.0
    word: str = "a"
    sure: bool = False
    few: int | None = None
    width: float | Literal["auto"] = "auto"
    first: Calibrator = field(default_factory=DoNothing)
    weights: tuple[float, ...] = (1.0,)
    steps: tuple[Calibrator, ...] = ()

    def learn(self, predictions):
        raise NotImplementedError


KNOWN = {"none": DoNothing(), "temperature": TemperatureScaling(), "everything": Everything()}


def test_the_catalogue_has_every_exported_calibrator_under_its_own_name():
    classes = [getattr(calibrators, name) for name in calibrators.__all__]
    concrete = {kind.name for kind in classes if isinstance(kind, type) and hasattr(kind, "name")}
    known = {**all_calibrators(), **all_feature_calibrators()}
    assert {"none", "temperature", "chain", "density_ratio"} <= concrete <= set(known)
    assert len(known) == len(all_calibrators()) + len(all_feature_calibrators())
    assert list(all_calibrators()) == sorted(all_calibrators())
    assert all(calibrator.name == name for name, calibrator in known.items())


def test_a_name_means_one_thing_so_that_cite_can_tell():
    assert not (set(all_calibrators()) | set(all_feature_calibrators())) & set(all_metrics())


@pytest.mark.parametrize("name", all_calibrators())
def test_every_calibrator_is_found_by_its_name(name):
    assert find_calibrator(name) == all_calibrators()[name]


def test_a_calibrator_that_needs_features_is_found_by_itself_and_stands_in_no_chain():
    assert find_any_calibrator("density_ratio(neighbours=5)") == DensityRatioCalibration(neighbours=5)
    assert find_any_calibrator("none") == DoNothing()
    for text in ("density_ratio", "none+density_ratio", "chain(steps=[density_ratio])"):
        with pytest.raises(InputError, match="density_ratio needs features"):
            find_calibrator(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temperature", TemperatureScaling()),
        (" temperature ( ) ", TemperatureScaling()),
        ("temperature(criterion=focal)", TemperatureScaling(criterion="focal")),
        ("temperature( criterion = focal , gamma = 2 )", TemperatureScaling(criterion="focal", gamma=2.0)),
        ("temperature(gamma=1e+1)", TemperatureScaling(gamma=10.0)),
        ("temperature+none", Chain((TemperatureScaling(), DoNothing()))),
        (
            "temperature(criterion=focal,gamma=5e+0) + none + none()",
            Chain((TemperatureScaling(criterion="focal", gamma=5.0), DoNothing(), DoNothing())),
        ),
    ],
)
def test_a_text_is_a_name_with_options_or_a_chain_of_these(text, expected):
    assert find_calibrator(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("way=down", Everything(way="down")),
        ("way=3", Everything(way=3)),
        ("count=-7", Everything(count=-7)),
        ("weight=1e-3", Everything(weight=0.001)),
        ("weight=inf", Everything(weight=float("inf"))),
        ("word=none", Everything(word="none")),
        ("sure=true", Everything(sure=True)),
        ("sure=False", Everything(sure=False)),
        ("few=5", Everything(few=5)),
        ("few=None", Everything(few=None)),
        ("width=auto", Everything(width="auto")),
        ("width=0.5", Everything(width=0.5)),
        ("first=temperature(criterion=focal,gamma=3)", Everything(first=TemperatureScaling("focal", 3.0))),
        ("first=none+temperature", Everything(first=Chain((DoNothing(), TemperatureScaling())))),
        ("weights=[0.1, 1,10]", Everything(weights=(0.1, 1.0, 10.0))),
        (
            "steps=[none,temperature(criterion=focal)],count=2",
            Everything(count=2, steps=(DoNothing(), TemperatureScaling("focal"))),
        ),
    ],
)
def test_an_option_is_read_by_its_type(text, expected):
    found = parse_method(f"everything({text})", KNOWN)
    assert found == expected
    values = [getattr(found, name) for name in ("weight", "weights", "sure", "few")]
    assert [type(value) for value in values[:3]] == [float, tuple, bool]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("temperatur", UnknownNameError, "a method must be one of .*temperature.*Did you mean temperature"),
        ("none+temprature", UnknownNameError, "Did you mean temperature"),
        (
            "everything(cuont=1)",
            UnknownNameError,
            "an option of everything must be one of way, count, .*Did you mean count",
        ),
        ("none(x=1)", UnknownNameError, "an option of none must be left out, as there are none; got 'x'"),
        ("everything(first=noone)", UnknownNameError, "a method must be one of.*Did you mean none"),
        ("everything(steps=[none,nine])", UnknownNameError, "Did you mean none"),
        ("", InputError, "temperature.criterion=focal.*got ''"),
        ("none+", InputError, "got ''"),
        ("a b", InputError, "got 'a b'"),
        ("none)", InputError, "bracket"),
        ("none(", InputError, "bracket"),
        ("none(x=1)(y=2)", InputError, "bracket"),
        ("everything(count)", InputError, "must read name=value; got 'count'"),
        ("everything(count=1,count=2)", InputError, "count of everything twice"),
        ("everything(count=1.5)", InputError, "count of everything must be a whole number; got '1.5'"),
        ("everything(count=)", InputError, "a whole number; got ''"),
        ("everything(weight=x)", InputError, "weight of everything must be a number; got 'x'"),
        ("everything(weight=nan)", InputError, "must be a number; got 'nan'"),
        ("everything(sure=1)", InputError, "sure of everything must be true or false; got '1'"),
        ("everything(way=left)", InputError, "way of everything must be one of up, down, 3; got 'left'"),
        ("everything(few=x)", InputError, "few of everything must be a whole number or none; got 'x'"),
        ("everything(word=)", InputError, "a word; got ''"),
        ("everything(weights=1)", InputError, "a list in square brackets, each of it a number; got '1'"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_can(text, error, said):
    with pytest.raises(error, match=said):
        parse_method(text, KNOWN)


def test_nothing_in_a_text_is_evaluated():
    assert parse_method("everything(word=1+1)", KNOWN).word == "1+1"
    with pytest.raises(InputError, match="a whole number"):
        parse_method("everything(count=1+1)", KNOWN)
