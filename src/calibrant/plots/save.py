"""Write figures to png, svg and pdf files, each atomically."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from calibrant.atomic import atomic_path
from calibrant.errors import FileError, InputError

__all__ = ["save_figure", "save_figures"]

# No date inside, so that the same figure is the same file tomorrow.
_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write one figure; the ending of the path sets the format.

    Args:
        figure: Any matplotlib figure.
        path: File to write, ending in .png, .svg or .pdf; its folder must exist.
        dpi: Dots per inch of a png.

    Returns:
        The path.

    Raises:
        InputError: If the path has another ending.
        FileError: If the system refuses to write.
    """
    path = Path(path)
    form = path.suffix.removeprefix(".").lower()
    if form not in _UNDATED:
        raise InputError(f"a figure's file must end in .{', .'.join(_UNDATED)}; got {path.name!r}.")
    with atomic_path(path) as partial:
        figure.savefig(partial, format=form, dpi=dpi, facecolor=figure.get_facecolor(), metadata=_UNDATED[form])
    return path


def save_figures(
    figures: Mapping[str, Figure],
    folder: str | os.PathLike[str],
    *,
    formats: Sequence[str] = ("png", "svg", "pdf"),
    dpi: int = 200,
) -> list[Path]:
    """Write every figure in every format, as ``folder/name.format``; the folder is created if it is missing.

    Args:
        figures: Figures by name, such as those of :func:`calibrant.plots.figures`.
        folder: Folder to write to.
        formats: Any of "png", "svg", "pdf".
        dpi: Dots per inch of a png.

    Returns:
        The paths, in order.

    Raises:
        InputError: If a format is unknown.
        FileError: If the folder cannot be created, or the system refuses to write.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"the folder {folder} could not be made: {error.strerror or error}. Name another for the figures."
        ) from error
    return [
        save_figure(figure, folder / f"{name}.{form}", dpi=dpi) for name, figure in figures.items() for form in formats
    ]
