"""Run files in and out: the content of a file decides its form, and a file is written whole or not at all."""

from __future__ import annotations

import gzip
import json
import zlib
from enum import StrEnum
from typing import TYPE_CHECKING

from obliq_eval import run_json, run_parquet, run_trec
from obliq_eval.errors import UserError
from obliq_eval.home import whole_file
from obliq_eval.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from obliq_eval.run_json import Row

GZIP, LZ4, PARQUET = b"\x1f\x8b", b"\x04\x22\x4d\x18", b"PAR1"


class Form(StrEnum):
    """A form that a run can be written in."""

    TREC = "trec"
    RANX = "ranx"
    MTEB = "mteb"
    PARQUET = "parquet"


def read_run(path: Path, *, part: str | None = None, depth: int | None = None) -> Run:
    """Read a run in any form; the content decides which, not the name of the file.

    Read are TREC's six columns (the score decides, the rank is ignored), ranx's JSON, LZ4 and Parquet, mteb's
    prediction files, ranked lists as JSONL, and obliq's Parquet; text may be compressed with gzip.

    Args:
        path: The file.
        part: For an mteb file with several subsets or splits: `subset/split`, or one of the two where that is enough.
        depth: How many documents were asked for; by default what the file says, or the longest answer.

    Raises:
        UserError: If the file is of none of these forms, is cut off, ranks a document twice, or holds a score that is
            not a finite number; all problems at once, with their lines.
    """
    if path.suffix == ".toml":
        raise UserError(f"{path} is a model file, not a run: give the name that stands in it, once the model has run")
    data = _unpack(path)
    if data.startswith(PARQUET):
        rows, known_depth = run_parquet.rows(data, path)
        return _build(rows, path, depth, known_depth)
    if data.startswith(LZ4):
        return _build(run_json.lz4_rows(data, path), path, depth)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: neither UTF-8 text nor a known binary form of a run") from error
    if not text.strip():
        raise UserError(f"{path} is empty, so it holds no run")
    rows = run_json.rows(text, path, part) if run_json.looks_like_json(text) else run_trec.rows(text, path)
    return _build(rows, path, depth)


def write_run(run: Run, path: Path, form: str, *, name: str = "obliq", revision: str | None = None) -> tuple[str, ...]:
    """Write a run whole or not at all; text is compressed with gzip if the name ends in `.gz`.

    Args:
        run: The run.
        path: Where to; an existing file is replaced.
        form: One of `Form`; ranx's is its JSON.
        name: The system, for TREC's tag and mteb's header.
        revision: The system's revision, for mteb's header.

    Returns:
        One sentence for each thing that the form cannot hold as it is.

    Raises:
        UserError: If the form is unknown, or the file cannot be written.
    """
    if form not in set(Form):
        raise UserError(f'unknown form of a run "{form}": use one of {", ".join(Form)}')
    notes: tuple[str, ...] = ()
    with whole_file(path) as target:
        if form == Form.PARQUET:
            run_parquet.write(run, target)
            return notes
        if form == Form.TREC:
            text, notes = run_trec.text(run, name)
        else:
            text = json.dumps(run_json.mteb_object(run, name, revision) if form == Form.MTEB else run.to_dict())
        target.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return notes


def _build(rows: Iterable[Row], path: Path, depth: int | None, known_depth: int | None = None) -> Run:
    run = Run.build(rows, known_depth if depth is None else depth, str(path))
    longest = max((len(ranking) for ranking in run.rankings.values()), default=0)
    if longest > run.depth:
        raise UserError(f"{path}: the depth is said to be {run.depth}, but an answer has {longest} documents")
    return run


def _unpack(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return gzip.decompress(data) if data.startswith(GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); fetch or write it again") from error
