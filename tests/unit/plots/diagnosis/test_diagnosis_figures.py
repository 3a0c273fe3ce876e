"""Every figure of a diagnosis: drawn whatever the numbers are, its words whole, and nothing global changed."""

import math
from dataclasses import replace

import matplotlib as mpl
import pytest
from figure_words import check_words
from matplotlib.figure import Figure

from calibrant.diagnosis import spread
from calibrant.errors import InputError
from calibrant.plots import save_figures
from calibrant.plots.diagnosis import (
    diagnosis_figures,
    plot_calibratability,
    plot_coefficients,
    plot_densities,
    plot_learned_epochs,
    plot_learned_loss,
    plot_over_epochs,
    plot_shift,
    plot_shifted_sets,
    plot_two_sided,
    plot_validation_sizes,
)

PLOTS = {
    "calibratability": plot_calibratability, "two_sided": plot_two_sided, "densities": plot_densities,
    "coefficients": plot_coefficients, "validation_sizes": plot_validation_sizes, "epochs": plot_over_epochs,
    "learned_loss": plot_learned_loss, "learned_epochs": plot_learned_epochs, "shift": plot_shift,
    "shifted_sets": plot_shifted_sets,
}  # fmt: skip
OF_SHIFT = {"shift", "shifted_sets"}
NOTHING = spread([math.nan])


def without_numbers(found):
    """As of runs that no map could be fitted to and that answer everything right."""
    return replace(
        found,
        calibratability=tuple(
            replace(
                row,
                ece={name: row.ece[name] if name == "uncalibrated" else NOTHING for name in row.ece},
                temperature=NOTHING,
            )
            for row in found.calibratability
        ),
        refinement=tuple(
            replace(
                each,
                rows=tuple(
                    replace(row, metrics={"auroc": NOTHING}, density=row.density if row.map == "uncalibrated" else None)
                    for row in each.rows
                ),
            )
            for each in found.refinement
        ),
        validation_sizes=tuple(
            replace(each, points=tuple(replace(p, ece=dict.fromkeys(p.ece, NOTHING)) for p in each.points))
            for each in found.validation_sizes
        ),
        epochs=tuple(
            replace(
                each,
                numbers=dict(each.numbers)
                | {"temperature": type(each.numbers["ece"])(*[(math.nan,) * len(each.epochs)] * 3)},
            )
            for each in found.epochs
        ),
        learned_epochs=tuple(replace(each, rank_correlation=NOTHING) for each in found.learned_epochs),
        shift=replace(
            found.shift,
            levels=tuple(replace(each, metrics=dict(each.metrics) | {"auroc": NOTHING}) for each in found.shift.levels),
            rows=tuple(replace(each, metrics=dict(each.metrics) | {"auroc": NOTHING}) for each in found.shift.rows),
        ),
    )


@pytest.mark.parametrize(("candidates", "change"), [(1, lambda found: found), (2, without_numbers)])
def test_every_figure_is_drawn_and_its_words_stay_inside(maker, candidates, change):
    made = diagnosis_figures(change(maker(candidates, seeds=1).diagnosis()), theme="dark")
    assert set(made) == set(PLOTS) - ({"two_sided"} if candidates == 1 else set())
    for figure in made.values():
        check_words(figure)


@pytest.mark.parametrize("name", ["calibratability", "densities"])
def test_twelve_candidates_with_long_names_find_room(maker, name):
    check_words(PLOTS[name](maker(12).diagnosis()))


@pytest.mark.parametrize("name", ["coefficients", "validation_sizes", "epochs", "learned_loss", "shift"])
def test_one_point_across_is_drawn_too(maker, name):
    whole = maker(1, 1)
    found = replace(
        whole.diagnosis(),
        coefficients=(whole.curve((0.0, 0.1)),),
        validation_sizes=(whole.sizes(0, (640,)),),
        epochs=(whole.epochs(0, (5,), learned=True),),
        shift=whole.shift((3,)),
    )
    check_words(PLOTS[name](found.shift if name in OF_SHIFT else found))


@pytest.mark.parametrize("name", PLOTS)
def test_the_figure_given_is_the_figure_returned_and_nothing_global_changes(maker, name):
    found = maker(1).diagnosis()
    before, figure = dict(mpl.rcParams), Figure((9, 7))
    assert PLOTS[name](found.shift if name in OF_SHIFT else found, figure=figure, theme="dark") is figure
    assert dict(mpl.rcParams) == before


def test_what_has_no_numbers_has_no_figure(maker):
    assert set(diagnosis_figures(maker.bare(maker().diagnosis()))) == {"calibratability", "two_sided", "densities"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("coefficients", "one number alone"),
        ("validation_sizes", "draws=3"),
        ("epochs", "same epochs"),
        ("learned_loss", "meta_focal"),
        ("learned_epochs", "--trace"),
    ],
)
def test_a_figure_without_numbers_says_what_is_missing(maker, name, says):
    with pytest.raises(InputError, match=says):
        PLOTS[name](maker.bare(maker().diagnosis()))


def test_shifts_are_drawn_by_what_they_are(maker):
    whole = maker(1)
    corrupted, stored = whole.shift(files=()), whole.shift(source="file", files=())
    with_files = whole.shift(severities=())
    assert [
        set(diagnosis_figures(replace(maker.bare(whole.diagnosis()), shift=each))) & {*OF_SHIFT, "shift_files"}
        for each in (corrupted, stored, with_files)
    ] == [{"shift"}, {"shift_files"}, {"shifted_sets"}]
    with pytest.raises(InputError, match="severities"):
        plot_shift(with_files)
    with pytest.raises(InputError, match="clean samples"):
        plot_shifted_sets(corrupted)


def test_figures_can_be_written(maker, tmp_path):
    found = maker.bare(maker(1).diagnosis())
    paths = save_figures(diagnosis_figures(found), tmp_path, formats=["svg"])
    assert {path.stem for path in paths} == {"calibratability", "densities"}
    assert all(path.read_bytes().startswith(b"<?xml") for path in paths)
