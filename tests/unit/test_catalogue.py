"""Calibrators by name, with options and in chains, as a person writes them."""

from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import ClassVar, Literal, final

import pytest

from calibrant import calibrators, catalogue
from calibrant.calibrators import Calibrator, Chain, DensityRatioCalibration, TemperatureScaling, Uncalibrated
from calibrant.catalogue import Registry
from calibrant.errors import CalibrantWarning, InputError, UnknownNameError


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
    first: Calibrator = field(default_factory=Uncalibrated)
    weights: tuple[float, ...] = (1.0,)
    steps: tuple[Calibrator, ...] = ()

    def _fit(self, predictions):
        raise NotImplementedError


@pytest.fixture
def everything(monkeypatch):
    registry = catalogue._any_calibrators
    monkeypatch.setattr(registry, "_kinds", {"everything": Everything, **registry.kinds})
    return registry.parse


def test_the_catalogue_has_every_exported_calibrator_under_its_own_name():
    classes = [getattr(calibrators, name) for name in calibrators.__all__]
    concrete = {kind.name for kind in classes if isinstance(kind, type) and hasattr(kind, "name")}
    known = {**catalogue.calibrators, **catalogue.feature_calibrators}
    assert {"uncalibrated", "temperature", "chain", "density_ratio"} <= concrete <= set(known)
    assert len(known) == len(catalogue.calibrators) + len(catalogue.feature_calibrators)
    assert list(catalogue.calibrators) == sorted(catalogue.calibrators)
    assert all(calibrator.name == name for name, calibrator in known.items())


def test_a_name_means_one_thing_so_that_cite_can_tell():
    assert not (set(catalogue.calibrators) | set(catalogue.feature_calibrators)) & set(catalogue.metrics)


@pytest.mark.parametrize("name", catalogue.calibrators)
def test_every_calibrator_is_found_by_its_name(name):
    assert catalogue.parse_calibrator(name) == catalogue.calibrators[name]


def test_a_calibrator_that_needs_features_is_found_by_itself_and_stands_in_no_chain():
    assert catalogue.parse_any_calibrator("density_ratio(neighbours=5)") == DensityRatioCalibration(neighbours=5)
    assert catalogue.parse_any_calibrator("uncalibrated") == Uncalibrated()
    for text in ("density_ratio", "none+density_ratio", "chain(steps=[density_ratio])"):
        with pytest.raises(InputError, match="density_ratio needs features"):
            catalogue.parse_calibrator(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temperature", TemperatureScaling()),
        (" temperature ( ) ", TemperatureScaling()),
        ("temperature(criterion=focal)", TemperatureScaling(criterion="focal")),
        ("temperature( criterion = focal , gamma = 2 )", TemperatureScaling(criterion="focal", gamma=2.0)),
        ("temperature(gamma=1e+1)", TemperatureScaling(gamma=10.0)),
        ("temperature+none", Chain((TemperatureScaling(), Uncalibrated()))),
        (
            "temperature(criterion=focal,gamma=5e+0) + none + none()",
            Chain((TemperatureScaling(criterion="focal", gamma=5.0), Uncalibrated(), Uncalibrated())),
        ),
    ],
)
def test_a_text_is_a_name_with_options_or_a_chain_of_these(text, expected):
    assert catalogue.parse_calibrator(text) == expected


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
        ("first=none+temperature", Everything(first=Chain((Uncalibrated(), TemperatureScaling())))),
        ("weights=[0.1, 1,10]", Everything(weights=(0.1, 1.0, 10.0))),
        (
            "steps=[none,temperature(criterion=focal)],count=2",
            Everything(count=2, steps=(Uncalibrated(), TemperatureScaling("focal"))),
        ),
    ],
)
def test_an_option_is_read_by_its_type(text, expected, everything):
    found = everything(f"everything({text})")
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
        ("everything(first=uncalibrate)", UnknownNameError, "a method must be one of.*Did you mean uncalibrated"),
        ("everything(steps=[none,uncalibrate])", UnknownNameError, "Did you mean uncalibrated"),
        ("", InputError, "temperature.criterion=focal.*got ''"),
        ("none" + "+none" * 3000, InputError, "must read like"),
        ("chain(steps=" + "[" * 300 + "]" * 300 + ")", InputError, "steps of chain must be|must read like"),
        ("none+", InputError, r"got 'none\+'"),
        ("a b", InputError, "got 'a b'"),
        ("none)", InputError, "bracket"),
        ("none(", InputError, "bracket"),
        ("none(x=1)(y=2)", InputError, "must read like"),
        ("everything(count)", InputError, "must read name=value; got 'count'"),
        ("everything(count=1,count=2)", InputError, "count of everything twice"),
        ("everything(count=1.5)", InputError, "count of everything must be a whole number; got '1.5'"),
        ("everything(count=)", InputError, "must read like"),
        ("everything(weight=x)", InputError, "weight of everything must be a number; got 'x'"),
        ("everything(weight=nan)", InputError, "must be a number; got 'nan'"),
        ("everything(sure=1)", InputError, "sure of everything must be true or false; got '1'"),
        ("everything(way=left)", InputError, "way of everything must be one of up, down, 3; got 'left'"),
        ("everything(few=x)", InputError, "few of everything must be a whole number or none; got 'x'"),
        ("everything(word=)", InputError, "must read like"),
        ("everything(weights=1)", InputError, "a list in square brackets, each of it a number; got '1'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_can(text, error, said, everything):
    with pytest.raises(error, match=said):
        everything(text)


def test_nothing_in_a_text_is_evaluated(everything):
    assert everything("everything(word=1+1)").word == "1+1"
    with pytest.raises(InputError, match="a whole number"):
        everything("everything(count=1+1)")


class TestPlugins:
    """A package that declares an entry point adds to the catalogue."""

    @pytest.fixture
    def declare(self, monkeypatch):
        def declared(name, value):
            point = EntryPoint(name, value, "calibrant.calibrators")
            monkeypatch.setattr("calibrant.catalogue.plugins", lambda group: (point,) if group == point.group else ())
            return Registry("a method", "temperature", "calibrators", ("Calibrator",), group="calibrant.calibrators")

        return declared

    def test_a_declared_calibrator_is_found_and_takes_options(self, declare):
        registry = declare("everything", f"{__name__}:Everything")
        assert registry.parse("everything(count=3)").count == 3
        assert "everything" in list(registry)

    @pytest.mark.parametrize(
        ("name", "value", "problem"),
        [
            ("broken", "no_such_package:Thing", "cannot be loaded"),
            ("number", "math:pi", "concrete subclass of Calibrator"),
            ("other", f"{__name__}:Everything", "both names must be the same"),
            ("temperature", "calibrant.calibrators:TemperatureScaling", "taken"),
        ],
    )
    def test_a_broken_plugin_is_reported_and_left_out(self, declare, name, value, problem):
        registry = declare(name, value)
        with pytest.warns(CalibrantWarning, match=problem):
            known = set(registry)
        assert known == set(catalogue.calibrators)
        if name not in known:
            with pytest.raises(UnknownNameError, match=rf"the plugin {name} .*{problem}.*Repair or uninstall"):
                registry.parse(name)
