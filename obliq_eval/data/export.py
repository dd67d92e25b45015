"""A data set as files: the official layout, BEIR's, or TREC's; whole or not at all."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from obliq_eval import show
from obliq_eval.errors import UserError, raise_all
from obliq_eval.home import whole_folder
from obliq_eval.run_trec import _encoded as encoded
from obliq_eval.run_trec import _fits as fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from obliq_eval.data.sources import Loaded
    from obliq_eval.records import Dataset, Judgments

HEADER = "query-id\tcorpus-id\tscore\n"
BATCH = 1_000  # documents read from the corpus at a time
EXCLUSIONS, GROUPS, POOL = "per_query_excluded_ids.json", "groups.json", "qrels_pool.tsv"
FOLDERS = frozenset({"corpus", "queries+qrels", "qrels"})
WRITTEN = frozenset(
    {
        "corpus/corpus.jsonl",
        *(f"queries+qrels/{name}" for name in ("queries.jsonl", "qrels.tsv", POOL, EXCLUSIONS, GROUPS)),
        *("corpus.jsonl", "queries.jsonl", "qrels/test.tsv", POOL, EXCLUSIONS, GROUPS),
        *("documents.jsonl", "topics.tsv", "qrels.txt", "qrels_pool.txt"),
    }
)
"""Every folder and file that an export of any form writes; nothing else is ever replaced."""


class Form(StrEnum):
    """A layout that a data set can be written in."""

    OFFICIAL = "official"
    BEIR = "beir"
    TREC = "trec"


def export(loaded: Loaded, form: str, target: Path, *, force: bool = False) -> tuple[str, ...]:
    """Write a data set into a folder, every query of its file included, judged or not.

    Args:
        loaded: The data set, as `open_source` returns it.
        form: One of `Form`.
        target: The folder; it is made if it is missing.
        force: Replace an earlier export in this folder.

    Returns:
        One sentence for each thing that the form cannot hold as it is.

    Raises:
        UserError: If the form is unknown, the folder holds something, an id cannot be written, or the disk is full.
    """
    if form not in set(Form):
        raise UserError(f"unknown form of a data set {form!r}: use one of {', '.join(Form)}")
    target = _check_target(target, force=force)
    if loaded.facts.duplicate_ids:
        raise UserError(
            f"{loaded.source}: {loaded.facts.duplicate_ids} documents repeat an id, among them "
            f"{', '.join(map(repr, loaded.facts.examples[:3]))}; every document needs its own id"
        )
    if form != Form.TREC:
        _check_ids(loaded)
    writers: Mapping[str, Callable[[Loaded, Path], tuple[str, ...]]] = {
        Form.OFFICIAL: _official, Form.BEIR: _beir, Form.TREC: _trec,
    }  # fmt: skip
    with whole_folder(target) as part:
        try:
            return writers[form](loaded, part)
        except UnicodeEncodeError as error:
            raise UserError(
                f"{loaded.source}: {error.object[:60]!r} is not valid Unicode, so no file can hold it"
            ) from error


def _check_target(target: Path, *, force: bool) -> Path:
    """Refuse a folder that holds anything, and even with `force` one that holds more than an export.

    Returns:
        The folder to write; where `target` is a link, the one that it leads to, so that the link stays.
    """
    try:
        folder = target.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise UserError(f"{target} is a link that leads nowhere; name a folder") from error
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{target} is a file; name a folder")
    found = sorted(folder.rglob("*")) if folder.is_dir() else []
    if found and not force:
        raise UserError(f"{target} is not empty; choose another folder, or --force to replace an earlier export")
    if others := [path.relative_to(folder).as_posix() for path in found if not _is_written(path, folder)]:
        raise UserError(
            f"{target} holds what no export writes ({', '.join(others[:3])}), so --force does not replace it; "
            "choose another folder"
        )
    return folder


def _is_written(path: Path, folder: Path) -> bool:
    """Tell whether an export writes such a file or folder there; it never writes a link."""
    names = FOLDERS if path.is_dir() else WRITTEN
    return not path.is_symlink() and path.relative_to(folder).as_posix() in names


def _check_ids(loaded: Loaded) -> None:
    """Refuse ids that would break a line or a column of a TSV file."""
    judged = {i for judgments in loaded.dataset.judgments().values() for q, d, _ in judgments.pairs() for i in (q, d)}
    broken = sorted(identifier for identifier in judged if "\t" in identifier or "\n" in identifier)
    raise_all(
        [f"the id {identifier!r} holds a TAB or a line end, which qrels cannot hold" for identifier in broken],
        loaded.source,
    )


def _official(loaded: Loaded, folder: Path) -> tuple[str, ...]:
    data, judged = loaded.dataset, folder / "queries+qrels"
    (folder / "corpus").mkdir()
    judged.mkdir()
    _jsonl(folder / "corpus" / "corpus.jsonl", ({"_id": i, "text": t} for i, t in _documents(data)))
    _jsonl(judged / "queries.jsonl", ({"_id": i, "text": t} for i, t in loaded.query_texts.items()))
    _tsv(judged / "qrels.tsv", data.gold)
    if data.pooled is not None:
        _tsv(judged / POOL, data.pooled)
    _extras(loaded, judged)
    return _missing_gold(data)


def _beir(loaded: Loaded, folder: Path) -> tuple[str, ...]:
    data, notes = loaded.dataset, []
    (folder / "qrels").mkdir()
    _jsonl(folder / "corpus.jsonl", ({"_id": i, "title": "", "text": t} for i, t in _documents(data)))
    _jsonl(folder / "queries.jsonl", ({"_id": i, "text": t} for i, t in loaded.query_texts.items()))
    _tsv(folder / "qrels" / "test.tsv", data.gold)
    if data.pooled is not None:
        _tsv(folder / POOL, data.pooled)
        notes.append(f"BEIR has one kind of judgments: gold is qrels/test.tsv, the pooled ones are {POOL} beside it")
    _extras(loaded, folder)
    if loaded.exclusions:
        notes.append(f"BEIR has no exclusions: they are in {EXCLUSIONS}, which its own loader ignores")
    return (*notes, *_missing_gold(data))


def _trec(loaded: Loaded, folder: Path) -> tuple[str, ...]:
    data, queries = loaded.dataset, loaded.query_texts
    judged = [pair for judgments in data.judgments().values() for pair in judgments.pairs()]
    unfit = {i for i in (*queries, *(i for q, d, _ in judged for i in (q, d))) if not fits(i)}
    for batch in data.corpus.documents.iter(batch_size=BATCH):
        unfit.update(i for i in batch["id"] if not fits(i))
    spell: Callable[[str], str] = encoded if unfit else str
    _jsonl(folder / "documents.jsonl", ({"id": spell(i), "contents": t} for i, t in _documents(data)))
    lines = {query: " ".join(text.split()) for query, text in queries.items()}
    _text(folder / "topics.tsv", (f"{spell(query)}\t{text}\n" for query, text in lines.items()))
    for name, judgments in data.judgments().items():
        path = folder / ("qrels.txt" if name == "gold" else "qrels_pool.txt")
        _text(path, (f"{spell(query)} 0 {spell(document)} {grade}\n" for query, document, grade in judgments.pairs()))
    _extras(loaded, folder, spell)
    notes = []
    if unfit:
        notes.append(f"{len(unfit)} ids do not fit TREC's columns, so all ids are percent-encoded, as in exported runs")
    if changed := sum(text != queries[query] for query, text in lines.items()):
        notes.append(f"in {changed} topics runs of white space became one space: a topic is one line")
    if loaded.exclusions:
        notes.append(f"TREC has no exclusions: they are in {EXCLUSIONS}; drop these documents before any cut-off")
    return (*notes, *_missing_gold(data))


def _documents(data: Dataset) -> Iterator[tuple[str, str]]:
    """Yield `(id, text)` from the table on disk, a batch in memory at a time."""

    def rows() -> Iterator[tuple[str, str]]:
        for batch in data.corpus.documents.iter(batch_size=BATCH):
            yield from zip(batch["id"], batch["text"], strict=True)

    yield from show.track(rows(), "documents", len(data.corpus))


def _extras(loaded: Loaded, folder: Path, spell: Callable[[str], str] = str) -> None:
    """Write exclusions and groups where there are any."""
    excluded = {spell(query): sorted(map(spell, ids)) for query, ids in loaded.exclusions.items()}
    groups = {spell(query): group for query, group in loaded.groups.items()}
    for name, content in ((EXCLUSIONS, excluded), (GROUPS, groups)):
        if content:
            _text(folder / name, [json.dumps(content, ensure_ascii=False, indent=1) + "\n"])


def _missing_gold(data: Dataset) -> tuple[str, ...]:
    return () if len(data.gold) else (f"{data.name} has no gold judgments in this source; their file is empty",)


def _jsonl(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    _text(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _tsv(path: Path, judgments: Judgments) -> None:
    _text(path, (HEADER, *(f"{query}\t{document}\t{grade}\n" for query, document, grade in judgments.pairs())))


def _text(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(lines)
