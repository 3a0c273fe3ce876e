"""``calibrant cite``: where a method comes from."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from calibrant.paper import Paper

__all__ = ["cite", "papers_beside"]


def cite(
    name: Annotated[
        str, typer.Argument(help="A name that `calibrant list` shows, such as ece, or a method as for `calibrant fit`.")
    ],
) -> None:
    """Print the paper behind a method, the place in it, and its BibTeX entry; those of every step of a chain."""
    from calibrant.cli.index import papers_of

    papers = papers_of(name) or _loaded_papers_of(name)
    entries = dict.fromkeys(paper.bibtex for paper in papers)  # two places in one paper are one entry
    print("\n".join(map(str, papers)), *entries, sep="\n\n")


def _loaded_papers_of(name: str) -> "tuple[Paper, ...]":
    """The same from the classes themselves: with options, of what was added since, or to say what is wrong."""
    from calibrant.catalogue import find_papers
    from calibrant.errors import InputError

    beside = papers_beside()
    if name not in beside:
        return find_papers(name)
    paper = beside[name]
    if paper is None:
        raise InputError(f"{name} must come from a paper to be cited; it is our own.")
    return (paper,)


def papers_beside() -> "dict[str, Paper | None]":
    """Of what is no metric, loss or calibrator of predictions: networks, data sets, mixup, clamping, confidences."""
    from calibrant.clamping import NeuralClamping
    from calibrant.confidence import ConfidNet, TrustScore
    from calibrant.datasets import all_datasets
    from calibrant.models import all_models
    from calibrant.training import Mixup

    papers = {name: model.paper for name, model in all_models().items()}
    papers |= {name: reader.paper for name, reader in all_datasets().items()}
    papers |= {method.name: method.paper for method in (Mixup, ConfidNet, TrustScore)}
    return papers | {NeuralClamping.name: NeuralClamping.citation}
