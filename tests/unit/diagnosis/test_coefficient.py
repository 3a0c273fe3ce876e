"""Coefficient sensitivity: candidates that differ in one number."""

import pytest

from calibrant.diagnosis import coefficient_curves


def test_candidates_of_one_loss_are_a_curve_along_the_option_in_which_they_differ(made, evaluated_of):
    strengths = (0.1, 0.01, 0.05)
    runs = [
        made(f"label_smoothing(smoothing={strength})", seed, scale=3 - 10 * strength, noise=0.2)
        for strength in strengths
        for seed in (0, 1)
    ]
    evaluated = evaluated_of(made("ce"), *runs)
    (curve,) = coefficient_curves(evaluated)
    assert (curve.option, curve.loss) == ("loss.smoothing", "label_smoothing")
    assert [point.value for point in curve.points] == sorted(strengths)
    first = evaluated.find("label_smoothing(0.01)")
    assert curve.points[0].candidate == "label_smoothing(0.01)"
    assert curve.points[0].ece["temperature"] == first.over_runs("temperature", "ece")
    assert curve.points[0].optimal_ece.mean <= curve.points[0].ece["temperature"].mean + 1e-9
    assert curve.points[0].ece["uncalibrated"].mean > curve.points[2].ece["uncalibrated"].mean


def test_a_number_of_the_recipe_makes_a_curve_too_and_a_grid_makes_one_for_each_line(made, evaluated_of):
    runs = [made(f"focal(gamma={gamma})", mixup=mixup) for gamma in (1, 3) for mixup in (0.0, 0.2)]
    curves = coefficient_curves(evaluated_of(*runs))
    assert sorted(curve.option for curve in curves) == ["loss.gamma", "loss.gamma", "recipe.mixup", "recipe.mixup"]
    assert all(len(curve.points) == 2 for curve in curves)


@pytest.mark.parametrize(
    "second", [("focal(gamma=1)", {"mixup": 0.2}), ("focal(gamma=3,detach_weight=true)", {}), ("inverse_focal", {})]
)
def test_two_differences_or_a_switch_or_another_loss_make_no_curve(made, evaluated_of, second):
    loss, options = second
    assert coefficient_curves(evaluated_of(made("focal(gamma=3)"), made(loss, **options))) == ()


def test_a_candidate_alone_makes_no_curve(made, evaluated_of):
    assert coefficient_curves(evaluated_of(made("focal"), made("focal", 1))) == ()
