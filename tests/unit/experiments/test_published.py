"""Published numbers and claims against our own."""

import math

import pytest
from experiments.numbers import Number
from experiments.published import Claim, Published, findings, read_published

from calibrant.errors import InputError


def published(value=2.0, tolerance=0.5, found="agrees"):
    return Published("a", "Table 1", value, tolerance, "another network", found)


def claim(sign="below", found="holds"):
    return Claim("a", "it is lower", sign, "paired", found)


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        (Number(2.4, math.nan, math.nan, ""), "agrees"),
        (Number(2.6, math.nan, math.nan, ""), "differs"),
        (Number(2.4, -9.0, 14.0, "2 seeds"), "agrees"),
        (Number(3.0, 2.4, 3.6, "5 seeds"), "open"),
        (Number(3.0, 2.6, 3.4, "5 seeds"), "differs"),
        (None, "missing"),
    ],
)
def test_a_number_agrees_within_the_tolerance_and_differs_if_its_whole_interval_is_outside(number, verdict):
    assert published().verdict(number) == verdict


@pytest.mark.parametrize(
    ("low", "high", "below", "above"),
    [(-2, -1, "holds", "refuted"), (1, 2, "refuted", "holds"), (-1, 1, "open", "open"), (0, 0, "open", "open")],
)
def test_a_claim_holds_only_if_the_whole_interval_is_on_its_side(low, high, below, above):
    number = Number((low + high) / 2, low, high, "")
    assert claim("below").verdict(number) == below
    assert claim("above").verdict(number) == above


def test_a_difference_without_an_interval_decides_no_claim():
    assert claim().verdict(Number(-5.0, math.nan, math.nan, "1 seed")) == "open"


def test_a_verdict_that_the_file_does_not_expect_is_reported():
    (finding,) = findings([claim(found="holds")], {"a": Number(1, 0.5, 1.5, "5 seeds")})
    assert not finding.is_as_recorded
    assert "published.toml says holds" in str(finding)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[number]]\nid = "a"\n', "missing"),
        ('[[claim]]\nid = "a"\nwhat = ""\nsign = "left"\nreason = ""\nfound = "open"\n', "known verdict and sign"),
        ('[[table]]\nid = "a"\n', "table"),
        (2 * '[[claim]]\nid = "a"\nwhat = ""\nsign = "below"\nreason = ""\nfound = "open"\n', "2 times"),
    ],
)
def test_a_file_with_a_mistake_is_refused(text, words, tmp_path):
    path = tmp_path / "published.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_published(path)
