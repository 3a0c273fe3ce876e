"""Calibrate many files, or one that memory does not hold, with a map.

Every file becomes one of the same name and kind. Parquet files are read and written some rows at a time; other kinds a
whole file at a time. A file is complete or not there. A Parquet file says in its metadata what it was made from, so
that a run that was stopped continues with the files that are missing.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

from calibrant.atomic import atomic_path
from calibrant.errors import CalibrantError, FileError, InputError, caught_warnings, ours_in, reading
from calibrant.files.choose import LoadOptions
from calibrant.files.load import suffix_is
from calibrant.files.save import WRITERS, Scores, load_scores, save_scores, score_columns
from calibrant.maps import Map
from calibrant.scale.jobs import LOCAL, Engine
from calibrant.scale.shards import Plan, Shard

MapFor: TypeAlias = Callable[[Scores, Path], Map]  # the map for the scores of a file; an error if it does not fit them
_NUMBERS, _ROWS = 1 << 22, (1024, 1 << 17)  # in a batch, and its fewest and most rows
_MADE_FROM = b"calibrant.made_from"


@final
@dataclass(frozen=True)
class Target:
    """A shard, and the file to write."""

    shard: Shard
    out: Path

    @property
    def title(self) -> str:
        return self.shard.name


class Applied(NamedTuple):
    """What was written."""

    samples: int
    kind: str  # logits or probs
    labelled: bool
    left: tuple[str, ...]  # columns that were not copied
    copied: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # files that an earlier run had finished
    missing: tuple[str, ...] = ()  # shards that could not be read, and why
    notes: tuple[str, ...] = ()  # warnings


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

    Args:
        chosen: Shards and files.
        map_for: Returns the map for the scores of a shard; it must be known to other processes by its name.
        plan: What to read, as the first shard decides.
        identity: Text that differs for other maps and options: files made with it before are left.
        engine: Where the shards are read.
        allow_missing: Whether to leave out shards that cannot be read.
        progress: Called after every file.
    """
    for folder in {target.out.parent for target in chosen}:
        folder.mkdir(parents=True, exist_ok=True)
    work = partial(_work, plan=plan, map_for=map_for, identity=identity)
    parts, skipped, missing = list[Applied](), list[str](), list[str]()
    done = 0
    for answer in engine.run(work, chosen):  # type: ignore[arg-type]  # an engine knows nothing of its tasks
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
    )


def _all_of(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def _work(target: Target, *, plan: Plan, map_for: MapFor, identity: str) -> bytes:
    """Calibrate one shard; return what was written, or nothing if that had been done before."""
    shard, out = target.shard, target.out
    shard.check_unchanged()
    plan.check(shard)
    if suffix_is(shard.path, ".parquet") and suffix_is(out, ".parquet"):
        facts = f"{identity}/{shard.name}/{shard.size}/{shard.modified}"
        made_from = hashlib.sha256(facts.encode()).hexdigest().encode()
        if _known_source(out) == made_from:
            return b""
        with caught_warnings() as caught:
            applied = _stream(shard, out, map_for, plan.options, made_from)
    else:
        with caught_warnings() as caught:
            applied = _whole(shard, out, map_for, plan.options)
    notes = tuple(dict.fromkeys(map(str, ours_in(caught))))
    return json.dumps(applied._replace(notes=notes)).encode()


def _whole(shard: Shard, out: Path, map_for: MapFor, options: LoadOptions) -> Applied:
    """Calibrate a file into another, in memory."""
    loaded = load_scores(shard.path, options)
    calibrated = map_for(loaded, shard.path).transform(loaded.predictions)
    shard.check_unchanged()
    left = (*loaded.left, *save_scores(replace(loaded, predictions=calibrated), out))
    copied = tuple(name for name in loaded.others if name not in left)
    return Applied(len(calibrated), loaded.kind, loaded.labelled, left, copied)


def _known_source(out: Path) -> bytes | None:
    """Return what a Parquet file was made from, if it exists and says so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known: bytes | None = (pq.read_schema(out).metadata or {}).get(_MADE_FROM)
    except (OSError, pa.ArrowException):
        return None
    return known


def _stream(shard: Shard, out: Path, map_for: MapFor, options: LoadOptions, made_from: bytes) -> Applied:
    """Calibrate a Parquet file into another, some rows at a time; other columns are copied as they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from calibrant.files.tables import arrow_column

    n, fitted, writer = 0, None, None
    kind, labelled, left, copied, kept = "logits", True, tuple[str, ...](), tuple[str, ...](), list[str]()
    with atomic_path(out) as unfinished, ExitStack() as opened:
        for table, loaded in _batches(shard, options):
            if fitted is None:
                fitted = map_for(loaded, shard.path)
                assert loaded.layout is not None, "scores of a source have its layout"
                kind, labelled, left = loaded.kind, loaded.labelled, loaded.left
                kept = [name for name in table.schema.names if name not in left]
                scores = loaded.layout.scores
                copied = tuple(name for name in kept if name not in {*scores, *loaded.layout.labels})
            calibrated = replace(loaded, predictions=fitted.transform(loaded.predictions))
            columns = {name: arrow_column(column.contiguous()) for name, column in score_columns(calibrated).items()}
            written = pa.table({name: columns.get(name, table[name]) for name in kept})
            if writer is None:
                schema = written.schema.with_metadata({**(table.schema.metadata or {}), _MADE_FROM: made_from})
                others = [name for name in kept if name not in columns]  # scores hardly ever repeat
                writer = opened.enter_context(
                    pq.ParquetWriter(unfinished, schema, use_dictionary=others, write_page_checksum=True)
                )
            writer.write_table(written.cast(writer.schema))
            n += len(table)
        shard.check_unchanged()
    return Applied(n, kind, labelled, left, copied)


def _batches(shard: Shard, options: LoadOptions) -> Iterator[tuple[Any, Scores]]:
    """Yield some rows of a Parquet file at a time, as a table and as scores."""
    import pyarrow as pa

    from calibrant.files.tables import content_of, parquet_file

    fewest, most = _ROWS
    start = 0
    with reading(shard.path, "Parquet file"), parquet_file(shard.path) as file:
        if not file.metadata.num_rows:
            raise FileError(f"{shard.path} must have at least one row to be calibrated; it has none.")
        schema = file.schema_arrow
        for batch in file.iter_batches(min(most, max(fewest, _NUMBERS // len(schema))), use_threads=False):
            table = pa.Table.from_batches([batch], schema=schema)
            try:
                scores = load_scores(content_of(None, schema, table.select), options, with_others=False)
            except InputError as error:
                rows = f", rows from {start:,} on (counted from the first of them)" * bool(start)
                raise FileError(f"{shard.path}{rows}: ", *error.args) from error
            yield table, scores
            start += len(batch)
