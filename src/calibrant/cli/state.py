"""``calibrant state``: write what an evaluation needs to know of predictions, which adds up with others."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from calibrant.cli import options
from calibrant.cli.inputs import Files, Slicing
from calibrant.cli.options import check_output, option
from calibrant.cli.scale import ScaleOptions
from calibrant.errors import CalibrantWarning, InputError
from calibrant.text import counted, terminal_text

EXAMPLES = """\
calibrant state monday.parquet -o monday.state
calibrant state 'preds/*.parquet' -o week.state --workers 4 --checkpoint job"""


def state(  # noqa: PLR0913, PLR0917  # a command line has many options
    files: Files,
    out: Annotated[Path, option("FILE", "The state to write (.state).", names=("--out", "-o"))],
    slicing: Slicing = Slicing(),
    bins: options.Bins = 15,
    seed: options.Seed = 0,
    given: options.ScoreOptions = options.ScoreOptions(),
    confidences: options.ConfidenceOptions = options.ConfidenceOptions(),
    split: options.SplitColumn = None,
    scale: ScaleOptions = ScaleOptions(),
) -> None:
    """Write a state of predictions, which adds up with others.

    It is what an evaluation needs to know of them: a few megabytes, whatever their number. States of several days,
    files or machines add up: `calibrant evaluate day*.state` is the evaluation of all their samples.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.scale import find_shards, gather
    from calibrant.scale.jobs import warn_of_missing

    if not out.name.lower().endswith(".state"):
        raise InputError(f"--out must end in .state; got {out}.")
    shards = find_shards(files)
    check_output(out, [shard.path for shard in shards])
    err = standard_error()
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped), spinner(err) as stage, scale.started() as engine:
        reading = replace(confidences.as_options(given), extra=slicing.wanted)
        plan = scale.plan(shards, reading, options.SplitOption.parse(split), "test", by_class=slicing.classes)
        warn_of_missing(shards, plan, engine=engine, allow_missing=scale.allow_missing)
        allowed: dict[str, Any] = {"checkpoint": scale.checkpoint, "allow_missing": scale.allow_missing}
        gathered = gather(shards, plan, n_bins=bins, seed=seed, engine=engine, progress=stage, **allowed)
    if gathered is None:
        return
    described = [{"name": one.name, "size": one.size, "modified": one.modified} for one in gathered.shards]
    facts = [warning.facts for warning in dropped]
    gathered.state.save(out, notes={"shards": described, "missing": gathered.missing, "dropped": facts})
    console = standard_output()
    for warning in dropped:
        console.print(f"Caution: {terminal_text(warning)}", style="yellow")
    for name in gathered.missing:
        console.print(f"missing: {name}", style="yellow")
    read, size = f"{gathered.state.n:,} samples of {counted(len(shards), 'file')}", out.stat().st_size / 1e6
    console.print(f"Wrote {out}: {read}, {size:.1f} MB")
