"""``python -m benchmarks``: run every benchmark once and write RESULTS.md. Wants ``make benchmarks``' environment."""

import platform
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks import imports, intervals, nine_metrics, smooth_error
from benchmarks.peers import UNAVAILABLE

_PAGE = Path(__file__).with_name("RESULTS.md")


def main() -> None:
    """Write the page."""
    torch.set_num_threads(1)
    missing = [f"Not compared: {peer} ({reason})." for peer, reason in UNAVAILABLE.items()]
    sections = []
    for part in (imports, smooth_error, intervals, nine_metrics):
        print(f"{part.__name__} …", flush=True)
        sections.append(part.report())
    about = (
        f"One run on {platform.machine()}, one thread, torch {version('torch')}, all candidates in turns, least "
        "processor time of several rounds. The machine is noisy: only ratios count. Written by `make benchmarks`."
    )
    head = ["# Speed, beside the peers", "", about, "", *missing]
    _PAGE.write_text("\n".join(head) + "\n" + "\n".join(sections), encoding="utf-8")
    print(_PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
