"""``calibrant cite``: the paper behind a method."""

from typing import Annotated

import typer

__all__ = ["EXAMPLES", "cite"]

EXAMPLES = """\
calibrant cite ece
calibrant cite temperature+isotonic"""


def cite(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name from `calibrant list`, or a method as for `calibrant fit`.", show_default=False
        ),
    ],
) -> None:
    """Print the paper of a method, metric, loss, network or data set.

    Prints the reference with the place in the paper, and a BibTeX entry; for a chain, those of every step.
    """
    from calibrant.cli.listing import listed_papers, other_papers

    papers = listed_papers(name)
    if papers is None:  # with options, added since the index was made, or unknown
        from calibrant.catalogue import find_papers
        from calibrant.errors import InputError

        others = other_papers()
        if name not in others:
            papers = find_papers(name)
        elif (paper := others[name]) is None:
            raise InputError(f"{name} must come from a paper to be cited; it is our own.")
        else:
            papers = (paper,)
    entries = dict.fromkeys(paper.bibtex for paper in papers)  # two places in one paper are one entry
    print("\n".join(map(str, papers)), *entries, sep="\n\n")
