"""``calibrant cite``: where a method comes from."""

from typing import Annotated

import typer

__all__ = ["cite"]


def cite(name: Annotated[str, typer.Argument(help="A name that `calibrant list` shows, such as ece.")]) -> None:
    """Print the paper behind a method, the place in it, and its BibTeX entry."""
    from calibrant.catalogue import find_metric

    paper = find_metric(name).paper
    print(f"{paper}\n\n{paper.bibtex}")
