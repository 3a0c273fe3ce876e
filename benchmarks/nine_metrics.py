"""Nine metrics from float32 logits at once: against one ``log_softmax`` over the same array, and against the peers."""

from benchmarks.memory import peak_in_a_process_of_its_own, print_peak
from benchmarks.peers import Rows, rivals
from benchmarks.timing import in_turns
from calibrant import Predictions
from calibrant.metrics import ACE, AURC, AUROC, ECE, MCE, NLL, SCE, Brier, Entropy, RankedCells, Tally

__all__ = ["EXACT", "report"]

EXACT = (ECE(), ACE(), MCE(), SCE(), Brier(), NLL(), Entropy(), AUROC(), AURC())
_CELLS = RankedCells()
BOUNDED = (ECE(), ACE(ranks=_CELLS), MCE(), SCE(), Brier(), NLL(), Entropy(), AUROC(ranks=_CELLS), AURC(ranks=_CELLS))
SIZES = ((50_000, 1000), (1_000_000, 10))


def report() -> str:
    """The section of the results."""
    about = (
        "One `log_softmax` over the same array is the unit. Ours with exact ranks, and with ranks in bounded memory "
        "(`RankedCells`, with the largest difference of any of the nine numbers). Memory is the peak above the input, "
        "in a process of its own. The peers: for each metric that one of them offers, the fastest (most take "
        "probabilities; their softmax is not charged)."
    )
    lines = [
        "## ece, ace, mce, sce, brier, nll, entropy, auroc and aurc together, from float32 logits",
        "",
        about,
        "",
        "| rows x classes | exact | memory | bounded | memory | differs by | fastest peers, summed | slower by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    details = []
    for n, k in SIZES:
        line, detail = _measure(n, k)
        lines.append(line)
        details.append(detail)
    return "\n".join([*lines, "", *details]) + "\n"


def _measure(n: int, k: int) -> tuple[str, str]:
    rows = Rows.make(n, k).prepare()
    predictions = Predictions(rows.logits, rows.labels)
    tasks = {
        "unit": lambda: rows.logits.log_softmax(dim=1),
        "exact": lambda: Tally(EXACT).add(predictions).values(),
        "bounded": lambda: Tally(BOUNDED).add(predictions).values(),
    }
    times = in_turns(tasks, rounds=9)
    unit = times["unit"]
    exact, bounded = (Tally(metrics).add(predictions).values() for metrics in (EXACT, BOUNDED))
    differs = max(abs(exact[name] - bounded[name]) for name in exact)
    peers = _fastest_peers(rows)
    total = sum(seconds for _, seconds in peers.values())
    line = (
        f"| {n:,} x {k} | **{times['exact'] / unit:.2f}** | {_memory(rows, 'exact')} MB | "
        f"**{times['bounded'] / unit:.2f}** | {_memory(rows, 'bounded')} MB | {differs:.0e} | {total / unit:.0f} | "
        f"{total / times['exact']:.0f} times |"
    )
    named = ", ".join(f"{metric} {peer} {seconds / unit:.1f}" for metric, (peer, seconds) in peers.items())
    return line, f"- {n:,} x {k}, fastest peer of each, in passes: {named}."


def _fastest_peers(rows: Rows) -> dict[str, tuple[str, float]]:
    """For every metric that some peer offers, the fastest peer; those that take long are timed once."""
    fastest = {}
    for metric in EXACT:
        tasks = {name: (lambda run=run: run(rows)) for name, run in rivals(metric.name).items()}
        if tasks:
            times = in_turns(tasks, rounds=1 if metric.name == "sce" else 2)
            name = min(times, key=times.__getitem__)
            fastest[metric.name] = (name, times[name])
    return fastest


def _memory(rows: Rows, ranks: str) -> int:
    """Peak memory above the input in a process that has only read the input, in MB."""
    return round(peak_in_a_process_of_its_own("benchmarks.nine_metrics", rows, ranks))


def _add_up(predictions: Predictions, ranks: str) -> None:
    Tally({"exact": EXACT, "bounded": BOUNDED}[ranks]).add(predictions).values()


if __name__ == "__main__":
    print_peak(_add_up)
