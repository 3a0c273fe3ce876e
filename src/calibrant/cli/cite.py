"""``calibrant cite``: where a method comes from."""

from typing import Annotated

import typer

__all__ = ["cite"]


def cite(
    name: Annotated[
        str, typer.Argument(help="A name that `calibrant list` shows, such as ece, or a method as for `calibrant fit`.")
    ],
) -> None:
    """Print the paper behind a method, the place in it, and its BibTeX entry; those of every step of a chain."""
    from calibrant.catalogue import find_papers

    papers = find_papers(name)
    entries = dict.fromkeys(paper.bibtex for paper in papers)  # two places in one paper are one entry
    print("\n".join(map(str, papers)), *entries, sep="\n\n")
