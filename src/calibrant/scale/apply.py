"""Calibrate many files, or one that memory does not hold, with a map.

Every file becomes one of the same name and kind, read and written some rows at a time; ``.pt`` files whole. A file is
complete or not there. Formats with metadata (Parquet, Arrow, safetensors) say what they were made from, so that a run
that was stopped continues with the files that are missing.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, final

from calibrant.errors import CalibrantError, Caveat, FileError, InputError, caught_warnings, ours_in
from calibrant.files.load import suffix_is
from calibrant.files.save import WRITERS, Applied, Scores, known_source, load_score_batches, save_score_batches
from calibrant.maps import Map
from calibrant.scale.jobs import LOCAL, Engine
from calibrant.scale.shards import Plan, Shard

MapFor: TypeAlias = Callable[[Scores, Path], Map]  # the map for the scores of a file; an error if it does not fit them


@final
@dataclass(frozen=True)
class Target:
    """A shard, and the file to write."""

    shard: Shard
    out: Path

    @property
    def title(self) -> str:
        return self.shard.name


def targets(shards: Sequence[Shard], folder: Path, *, sources: Sequence[Path]) -> list[Target]:
    """Return the file in the folder for each shard of the sources, by its name; refuse a folder that holds shards."""
    if not folder.is_dir() and suffix_is(folder, *WRITERS):
        raise InputError(f"--out must be a folder, because there may be several files; got {folder}. Name a folder.")
    for source in sources:
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise InputError(f"--out must not lie in {source}, where the next run would read it; got {folder}.")
    inputs = {shard.path.resolve() for shard in shards}
    made = [Target(shard, folder / shard.name) for shard in shards]
    for target in made:
        if target.out.resolve() in inputs:
            raise FileError(f"{target.out} must not be written to: it is an input file. Name another folder.")
    return made


def apply_to_shards(
    chosen: Sequence[Target],
    map_for: MapFor,
    plan: Plan,
    *,
    identity: str,
    engine: Engine = LOCAL,
    allow_missing: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Applied | None:
    """Calibrate every shard into its file; None in the other processes of ``torchrun``.

    ``map_for`` must be known to other processes by its name. ``identity`` is a text that differs for other maps and
    options: files made with it before are left. ``progress`` is called after every file.
    """
    for folder in {target.out.parent for target in chosen}:
        folder.mkdir(parents=True, exist_ok=True)
    work = partial(_work, plan=plan, map_for=map_for, identity=identity)
    parts, skipped, missing = list[Applied](), list[str](), list[str]()
    done = 0
    for answer in engine.run(work, chosen):  # type: ignore[arg-type]  # an engine takes tasks of any type
        target, done = chosen[done], done + 1
        if isinstance(answer, CalibrantError):
            if not allow_missing:
                raise answer
            missing.append(f"{target.shard.name} ({answer})")
        elif answer:
            parts.append(Applied(*json.loads(answer)))
        else:
            skipped.append(target.shard.name)
        progress(f"{done} of {len(chosen)} files, {sum(part.samples for part in parts):,} samples")
    if done < len(chosen):
        return None
    first = parts[0] if parts else Applied(0, "logits", labelled=True, left=(), copied=())
    return Applied(
        sum(part.samples for part in parts),
        first.kind,
        all(part.labelled for part in parts),
        _all_of(part.left for part in parts),
        _all_of(part.copied for part in parts),
        tuple(skipped),
        tuple(missing),
        _all_of(part.notes for part in parts),
        sum(part.unscored for part in parts),
    )


def _all_of(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _work(target: Target, *, plan: Plan, map_for: MapFor, identity: str) -> bytes:
    """Calibrate one shard; return what was written, or nothing if that had been done before."""
    shard, out = target.shard, target.out
    shard.check_unchanged()
    plan.check(shard)
    facts = f"{identity}/{shard.name}/{shard.size}/{shard.modified}"
    made_from = hashlib.sha256(facts.encode()).hexdigest()
    if known_source(out) == made_from:
        return b""
    with caught_warnings() as caught:
        applied = save_score_batches(_calibrated(shard, plan, map_for), out, made_from=made_from)
    kept = [one for one in caught if getattr(one.message, "caveat", None) is not Caveat.floored_labels]
    notes = tuple(dict.fromkeys(map(str, ours_in(kept))))
    return json.dumps(applied._replace(notes=notes)).encode()


def _calibrated(shard: Shard, plan: Plan, map_for: MapFor) -> Iterator[Scores]:
    """Yield the calibrated scores of a shard, some rows at a time."""
    fitted = None
    try:
        for scores in load_score_batches(shard.path, plan.options, plan.choice):
            fitted = map_for(scores, shard.path) if fitted is None else fitted
            yield replace(scores, predictions=fitted.transform(scores.predictions))
    except InputError:
        shard.check_unchanged()  # which is why, if it has changed
        raise
    shard.check_unchanged()
