"""What a reader of a candidate's numbers should know of its runs."""

from collections.abc import Iterator

from calibrant.diagnosis.candidate import Candidate

__all__ = ["candidate_notes"]


def candidate_notes(candidate: Candidate) -> Iterator[str]:
    """Which runs lack something, and what is left out for that; and in which a learned γ ended at its limit.

    Args:
        candidate: From :func:`~calibrant.diagnosis.candidate.grouped`.
    """
    for run in candidate.runs:
        if not run.is_recorded:
            recorded = f"{len(run.records)} of {run.settings.recipe.epochs} records"
            yield f"seed {run.seed}: epochs.jsonl has {recorded}, so the run is left out of the curves over epochs"
    ends = {
        run.seed: next((each.learned for each in reversed(run.records) if each.learned), {}) for run in candidate.runs
    }
    clipped = [
        f"seed {seed}: {end['gamma_clipped']:.1%} of rows" for seed, end in ends.items() if end.get("gamma_clipped")
    ]
    if clipped:
        runs = "run" if len(ends) == 1 else "runs"
        yield f"γ at its limit in {len(clipped)} of {len(ends)} {runs} in the end ({', '.join(clipped)})"
