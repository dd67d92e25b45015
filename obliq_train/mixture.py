"""Training rows of several parts made into one file: drawn, without duplicates, without conflicts, shuffled.

Two passes over the files: the first reads every row and keeps some numbers of each, the second writes the chosen rows
in their new order. So the texts never are in memory together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError, raise_all
from obliq_eval.jsonl import value_of
from obliq_train.distinct import Distinct, same
from obliq_train.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from io import BufferedReader
    from pathlib import Path

    from numpy.typing import NDArray

    from obliq_train.mixing import Mix, Part

CONFLICTS = "rows whose positive is among their negatives"


@dataclass(frozen=True)
class Found:
    """One row as the first pass remembers it.

    Args:
        part: Number of its part.
        offset: Where its line begins in the file, in bytes.
        document: Hash of its first positive.
    """

    part: int
    offset: int
    document: bytes


@dataclass
class Lengths:
    """Lengths of one part's texts, by what they are: `query`, `positive`, `negative`.

    Args:
        characters: Characters of each text.
        tokens: Tokens of each text, if a tokenizer was given.
    """

    characters: dict[str, list[int]] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)


class Mixture:
    """The rows of a mixture.

    Args:
        mix: What it is made of; every part that is used has a file.
        tokens: Tokens of a text by the student's tokenizer; None for characters alone.
        limits: Tokens at which the trainer cuts queries and documents.
    """

    def __init__(
        self, mix: Mix, tokens: Callable[[str], int] | None = None, limits: tuple[int, int] = (1024, 1024)
    ) -> None:
        self.mix, self._tokens, self.limits = mix, tokens, limits
        self.counts: Counter[str] = Counter()
        self.rows_by: Counter[tuple[str, str]] = Counter()
        """Rows written by part and task."""
        self.lengths: dict[str, Lengths] = {}
        self._documents: dict[str, Mapping[str, str]] = {}

    def lines(self) -> Iterator[str]:
        """Yield the rows as lines of JSONL, in the order that the seed decides.

        Raises:
            UserError: If a file is none of rows; or, unless they are to be repaired, for the rows whose positive is
                among their negatives.
        """
        chosen = self._chosen()
        if not chosen:
            raise UserError("no row is left of these parts, and nothing was written")
        order = np.random.default_rng([self.mix.seed, 1]).permutation(len(chosen))
        files: dict[int, BufferedReader] = {}
        try:
            for place in order:
                found = chosen[int(place)]
                part = self.mix.parts[found.part]
                stream = files.get(found.part)
                if stream is None:
                    assert part.file is not None  # noqa: S101 -- its rows were read from it
                    stream = files[found.part] = part.file.open("rb")
                stream.seek(found.offset)
                yield self._finished(part, self._row(part, stream.readline(), str(part.file))).to_json() + "\n"
        finally:
            for stream in files.values():
                stream.close()

    def all_counts(self) -> dict[str, int]:
        """Return what was written, left out and repaired, and the lengths, by name."""
        found = {"rows": sum(self.rows_by.values())}
        if self.mix.total is not None:
            found["rows meant to be there"] = self.mix.total
        found |= {f"{part}: rows{f' of {task}' if task else ''}": n for (part, task), n in sorted(self.rows_by.items())}
        found |= dict(sorted(self.counts.items()))
        for part, lengths in sorted(self.lengths.items()):
            for unit, measured in (("characters", lengths.characters), ("tokens", lengths.tokens)):
                for name, values in measured.items():
                    found[f"{part}: {name} {unit}, median"] = int(np.median(values))
                    found[f"{part}: {name} {unit}, most"] = max(values)
            for name, values in lengths.tokens.items():
                limit = self.limits[0 if name == "query" else 1]
                found[f"{part}: {name} texts beyond {limit} tokens"] = sum(value > limit for value in values)
        return found

    def _chosen(self) -> list[Found]:
        """Return the rows that are drawn, in the order of the parts."""
        seen: set[bytes] = set()
        problems: list[str] = []
        by_part: list[list[Found]] = []
        for number, part in enumerate(self.mix.parts):
            if part.name in self.mix.replaced:
                self.counts[f"{part.name}: replaced"] = 1
                by_part.append([])
            else:
                by_part.append(self._per_document(part, self._read(number, part, seen, problems)))
        raise_all(problems, f'{CONFLICTS} (`obliq mix` takes such negatives out where `conflicts = "repair"`)')
        sizes = self._sizes([len(found) for found in by_part])
        return [one for part, found, size in zip(self.mix.parts, by_part, sizes, strict=True)
                for one in self._drawn(part, found, size)]  # fmt: skip

    def _read(self, number: int, part: Part, seen: set[bytes], problems: list[str]) -> list[Found]:
        assert part.file is not None  # noqa: S101 -- `Mix.with_files` sees to it
        found: list[Found] = []
        for line_number, offset, line in _lines(part.file):
            place = f"{part.file}, line {line_number}"
            row = self._row(part, line, place)
            if self.mix.conflicts == "refuse" and _conflicting(row):
                problems.append(place)
            key = _digest(row.query.text, *(passage.text for passage in row.positives))
            if key in seen:
                self.counts[f"{part.name}: duplicate rows"] += 1
                continue
            seen.add(key)
            found.append(Found(number, offset, _digest(row.positives[0].text)))
        return found

    def _per_document(self, part: Part, rows: list[Found]) -> list[Found]:
        if part.per_document is None:
            return rows
        held: Counter[bytes] = Counter()
        kept: list[Found] = []
        for row in rows:
            held[row.document] += 1
            if held[row.document] <= part.per_document:
                kept.append(row)
        if left := len(rows) - len(kept):
            self.counts[f"{part.name}: rows beyond {part.per_document} a document"] = left
        return kept

    def _sizes(self, known: list[int]) -> list[int]:
        """Return how many rows each part gives: its dose, its share by weight, or all."""
        parts = self.mix.parts
        doses = [n if part.dose is None else min(part.dose, n) for part, n in zip(parts, known, strict=True)]
        weights = {at: part.weight for at, part in enumerate(parts) if part.weight is not None and known[at]}
        if not weights:
            return doses
        # As many rows as the total leaves, or as the scarcest part allows: no row is ever repeated.
        per_weight = min(known[at] / weight for at, weight in weights.items())
        if self.mix.total is not None:
            fixed = sum(n for at, n in enumerate(doses) if at not in weights)
            per_weight = min(per_weight, max(self.mix.total - fixed, 0) / sum(weights.values()))
        return [int(per_weight * weights[at] + 1e-9) if at in weights else n for at, n in enumerate(doses)]

    def _drawn(self, part: Part, rows: list[Found], size: int) -> list[Found]:
        if part.dose is not None and part.name not in self.mix.replaced and len(rows) < part.dose:
            self.counts[f"{part.name}: rows short of the dose"] = part.dose - len(rows)
        if size < len(rows):
            self.counts[f"{part.name}: rows not drawn"] = len(rows) - size
        name = int.from_bytes(hashlib.sha256(part.name.encode()).digest()[:8], "big")
        picked: NDArray[np.int64] = np.sort(np.random.default_rng([self.mix.seed, name]).permutation(len(rows))[:size])
        return [rows[int(at)] for at in picked]

    def _row(self, part: Part, line: bytes, place: str) -> Row:
        try:
            row = Row.of(value_of(line), place)
        except ValueError as error:  # UnicodeDecodeError among them
            raise UserError(f"{place}: not a JSON object in UTF-8; is the file cut off?") from error
        if not part.documents:
            return row
        return row.resolved(self._texts(part.documents))

    def _texts(self, documents: str) -> Mapping[str, str]:
        if documents not in self._documents:
            from obliq_models.documents import read_source

            self._documents[documents] = Distinct(read_source(documents).table)
        return self._documents[documents]

    def _finished(self, part: Part, row: Row) -> Row:
        """Return a row as it is written, repaired, with its part and task, and measure it."""
        if _conflicting(row):
            self.counts[f"{part.name}: {CONFLICTS}, repaired"] += 1
            row = _repaired(row)
        task = str(row.more.get("task") or part.task)
        more = {**row.more, "task": task} if task else dict(row.more)
        row = replace(row, source=part.name, more=more)
        self.rows_by[part.name, task] += 1
        if any(not passage.text.strip() for passage in (row.query, *row.positives, *row.negatives)):
            self.counts[f"{part.name}: rows with a text that is empty"] += 1
        if not row.negatives:
            self.counts[f"{part.name}: rows without negatives"] += 1
        lengths = self.lengths.setdefault(part.name, Lengths())
        for name, passages in (("query", (row.query,)), ("positive", row.positives), ("negative", row.negatives)):
            for passage in passages:
                lengths.characters.setdefault(name, []).append(len(passage.text))
                if self._tokens is not None:
                    lengths.tokens.setdefault(name, []).append(self._tokens(passage.text))
        return row


def tokens_of(tokenizer: str) -> Callable[[str], int]:
    """Return a function that counts a text's tokens.

    Args:
        tokenizer: Name or folder of a tokenizer.

    Raises:
        UserError: If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    library: Any = AutoTokenizer
    try:
        found = library.from_pretrained(tokenizer, use_fast=True)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load the tokenizer {tokenizer!r}: {str(error).splitlines()[0]}") from error
    return lambda text: len(found(text, verbose=False)["input_ids"])


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset in bytes and content of each line that is not blank."""
    try:
        with path.open("rb") as stream:
            offset = 0
            for number, line in enumerate(stream, 1):
                start = offset + (3 if offset == 0 and line.startswith(b"\xef\xbb\xbf") else 0)
                if line.strip():
                    yield number, start, line.removeprefix(b"\xef\xbb\xbf") if offset == 0 else line
                offset += len(line)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _conflicting(row: Row) -> list[int]:
    """Return the places of the negatives that are one of the positives, by id or by text."""
    texts = {same(passage.text) for passage in row.positives}
    ids = set(row.positive_ids)
    named = len(row.negative_ids) == len(row.negatives)
    return [
        at
        for at, passage in enumerate(row.negatives)
        if same(passage.text) in texts or (named and row.negative_ids[at] in ids)
    ]


def _repaired(row: Row) -> Row:
    out = set(_conflicting(row))
    ids = row.negative_ids
    kept = [at for at in range(len(row.negatives)) if at not in out]
    return replace(
        row,
        negatives=tuple(row.negatives[at] for at in kept),
        negative_ids=tuple(ids[at] for at in kept) if len(ids) == len(row.negatives) else ids,
    )


def _digest(*texts: str) -> bytes:
    joined = "\0".join(map(same, texts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=16).digest()
