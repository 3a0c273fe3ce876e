"""``calibrant cite``: where a method comes from."""

from typing import Annotated

import typer

__all__ = ["cite"]


def cite(
    name: Annotated[str, typer.Argument(help="A name that `calibrant list` shows, such as ece or temperature.")],
) -> None:
    """Print the paper behind a method, the place in it, and its BibTeX entry."""
    from calibrant.catalogue import all_calibrators, all_feature_calibrators, all_metrics
    from calibrant.checks import check_known

    papers = {name: metric.paper for name, metric in all_metrics().items()}
    papers |= {name: calibrator.paper for name, calibrator in all_calibrators().items()}
    papers |= {name: calibrator.paper for name, calibrator in all_feature_calibrators().items()}
    check_known(name, papers, "a metric or calibrator")
    print(f"{papers[name]}\n\n{papers[name].bibtex}")
