"""Figures become files, whole or not at all."""

import pytest
from matplotlib.figure import Figure

from calibrant.errors import FileError, InputError
from calibrant.plots import figures, save_figure, save_figures
from calibrant.predictions import TopLabel

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def test_every_figure_is_written_in_every_format(tmp_path):
    made = figures(TopLabel([0.9, 0.8, 0.55], [True, False, True]))
    paths = save_figures(made, tmp_path / "new" / "folder", dpi=50)
    assert [path.name for path in paths] == [f"{name}.{form}" for name in made for form in STARTS]
    for path in paths:
        assert path.read_bytes().startswith(STARTS[path.suffix[1:]])
    assert len(list((tmp_path / "new" / "folder").iterdir())) == len(paths)


def test_the_same_figure_is_the_same_pdf_twice(tmp_path):
    figure = Figure()
    figure.add_subplot().plot([0, 1])
    first, second = (save_figure(figure, tmp_path / f"{name}.pdf").read_bytes() for name in "ab")
    assert first == second


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf; got 'a\.gif'"):
        save_figure(Figure(), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_a_failed_drawing_leaves_the_old_file(tmp_path):
    (tmp_path / "a.png").write_bytes(b"old")
    figure = Figure()
    figure.add_subplot().set_title(r"$\unknown{$")
    with pytest.raises(ValueError, match="unknown"):
        save_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_where_the_folder_should_be_is_named(tmp_path):
    (tmp_path / "taken").write_text("old")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(FileError, match=r"taken.* could not be made: .* Name another"):
            save_figures({"a": Figure()}, folder)
    assert (tmp_path / "taken").read_text() == "old"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileError, match="Make the folder"):
        save_figure(Figure(), tmp_path / "none" / "a.png")
