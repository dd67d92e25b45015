"""One `Dataset` from every source: a task name, a folder, a BEIR folder, the mirror, or a bundled mini set."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.data import hub
from obliq_eval.data.corpus import CorpusFacts, open_corpus
from obliq_eval.data.files import read_exclusions, read_groups, read_qrels, read_queries
from obliq_eval.data.official import FILES, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.records import Corpus, Dataset, Judgments

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG = logging.getLogger("obliq")
MINI_FOLDER = Path(__file__).parent / "mini"
MINI = {"OBLIQ-Mini-Writing": "writing", "OBLIQ-Mini-Math": "math", "OBLIQ-Mini-Congress": "congress"}
MIRROR_PREFIX = "mirror:"
BEIR_FILES = {
    "corpus": "corpus.jsonl",
    "queries": "queries.jsonl",
    "pooled": "qrels_pool.tsv",
    "exclusions": "per_query_excluded_ids.json",
    "groups": "groups.json",
}
"""Paths by role; the last three are additions of this project, which other readers ignore."""


@dataclass(frozen=True)
class Layout:
    """Paths of one task's files, whatever the layout they come in; `None` where a file does not exist."""

    corpus: Path
    queries: Path
    gold: Path
    pooled: Path | None = None
    exclusions: Path | None = None
    groups: Path | None = None

    def files(self) -> dict[str, Path]:
        """Return the files that exist, by role."""
        return {role: path for role, path in vars(self).items() if path is not None}


@dataclass(frozen=True)
class Loaded:
    """A data set with what was counted while reading it.

    Args:
        dataset: The data.
        facts: Counts over the corpus.
        source: Where it came from, for people.
        query_texts: Every query in the file, judged or not.
        exclusions: Those of every query that the file names, judged or not.
        groups: Likewise.
    """

    dataset: Dataset
    facts: CorpusFacts
    source: str
    query_texts: Mapping[str, str] = field(default_factory=dict)
    exclusions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


def load(reference: str | Path) -> Dataset:
    """Load the data of a task or folder.

    Args:
        reference: A task name (`OBLIQ-Writing`, `OBLIQ-Mini-Math`), a folder in the official or the BEIR layout, or
            `mirror:` and an official task name for mteb's mirror of it.

    Raises:
        UserError: If it is unknown, cannot be fetched, is damaged, repeats a document id, or judges a query that has
            no text.
    """
    loaded = open_source(reference)
    problems = []
    if loaded.facts.duplicate_ids:
        problems.append(
            f"{loaded.facts.duplicate_ids} documents repeat an id, among them "
            f"{', '.join(map(repr, loaded.facts.examples[:3]))}; every document needs its own id"
        )
    if missing := loaded.dataset.judged - loaded.query_texts.keys():
        problems.append(
            f"{len(missing)} judged queries have no text, among them {min(missing)!r}; "
            "add them to the query file or take their judgments out"
        )
    raise_all(problems, loaded.source)
    return loaded.dataset


def open_source(reference: str | Path) -> Loaded:
    """Load like `load`, but accept what `load` refuses, so that the audit can report it."""
    with hub.setting_errors():  # libraries that read the hub's settings when they are imported fail in their own ways
        return _open(reference)


def _open(reference: str | Path) -> Loaded:
    name = str(reference)
    if name in MINI:
        return open_layout(official_layout(MINI_FOLDER / MINI[name]), name, "mini", f"{name} (bundled)")
    if name in OFFICIAL:
        return _open_official(name)
    if name.startswith(MIRROR_PREFIX):
        from obliq_eval.data.mirror import open_mirror

        return open_mirror(name.removeprefix(MIRROR_PREFIX))
    folder = Path(reference)
    if folder.is_dir():
        layout = find_layout(folder)
        if layout.corpus.parent != folder and (folder / BEIR_FILES["corpus"]).exists():
            LOG.warning("%s holds two layouts: the official one is read, and corpus.jsonl beside it is not", folder)
        kind = "beir" if layout.corpus.parent == folder else "folder"
        return open_layout(layout, folder.resolve().name, kind, str(folder))
    known = (*OFFICIAL, *MINI)
    raise UserError(f"{name!r} is neither a task nor a folder{near(name, known) or '.'} Tasks: {', '.join(known)}")


def _open_official(name: str) -> Loaded:
    task = OFFICIAL[name]
    layout = official_layout(hub.snapshot(REPOSITORY, REVISION, task.folder, task.files))
    key = f"{REPOSITORY}@{REVISION}/{task.folder}"
    return open_layout(layout, name, "hub", f"{REPOSITORY}, {task.folder}", (key, REVISION))


def find_layout(folder: Path) -> Layout:
    """Return the layout of a folder: the official one or BEIR's.

    Raises:
        UserError: If it has neither, or files of it are missing.
    """
    if (folder / FILES["corpus"]).exists():
        return official_layout(folder)
    if (folder / BEIR_FILES["corpus"]).exists():
        return beir_layout(folder)
    raise UserError(
        f"{folder} holds neither corpus/corpus.jsonl (the official layout) nor corpus.jsonl (BEIR's layout); "
        "see `obliq data export --help` for both"
    )


def official_layout(folder: Path) -> Layout:
    """Return the paths of OBLIQ-Bench's layout, which `groups.json` extends.

    Raises:
        UserError: For every file that is needed and missing.
    """
    return _layout(folder, FILES)


def beir_layout(folder: Path) -> Layout:
    """Return the paths of BEIR's layout; of several qrels files, `test.tsv` is taken.

    Raises:
        UserError: For every file that is needed and missing, or if no qrels file is the obvious one.
    """
    found = [f"qrels/{path.name}" for path in sorted((folder / "qrels").glob("*.tsv"))]
    gold = "qrels/test.tsv" if len(found) != 1 else found[0]
    if len(found) > 1 and gold not in found:
        raise UserError(f"{folder} holds {', '.join(found)}; name one of them qrels/test.tsv")
    return _layout(folder, {**BEIR_FILES, "gold": gold})


def _layout(folder: Path, files: Mapping[str, str]) -> Layout:
    paths = {role: folder / name for role, name in files.items()}
    here = {role: path for role, path in paths.items() if path.is_file()}
    absent = [paths[role] for role in ("corpus", "queries", "gold") if role not in here]
    raise_all([f"{path.relative_to(folder)} is missing; a task needs it" for path in absent], str(folder))
    return Layout(**here)


def open_layout(layout: Layout, name: str, kind: str, source: str, fixed: tuple[str, str] | None = None) -> Loaded:
    """Read a task's files.

    Args:
        layout: The paths.
        name: Name of the data set.
        kind: Kind of source, see `Corpus`.
        source: Where it came from, for people.
        fixed: Key of the corpus and revision, for sources that a commit identifies; otherwise the content is hashed.
    """
    if fixed is None:
        hashes = _hashes(layout)
        fixed = f"sha256:{hashes['corpus']}", _revision(hashes)
    key, revision = fixed
    queries = read_queries(layout.queries)
    gold = read_qrels(layout.gold)
    pooled = read_qrels(layout.pooled) if layout.pooled else None
    exclusions = read_exclusions(layout.exclusions) if layout.exclusions else {}
    groups = read_groups(layout.groups) if layout.groups else {}
    documents, facts = open_corpus(layout.corpus, key)
    dataset = assemble(Corpus(name, revision, documents, kind), queries, gold, pooled, exclusions, groups)
    return Loaded(dataset, facts, source, queries, exclusions, groups)


def assemble(
    corpus: Corpus,
    queries: Mapping[str, str],
    gold: Judgments,
    pooled: Judgments | None = None,
    exclusions: Mapping[str, frozenset[str]] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Dataset:
    """Put the parts together; the queries are those that have a relevant document, in the order of the query file."""
    whole = Dataset(corpus, queries, gold, pooled, exclusions or {}, groups or {})
    judged = whole.judged
    return replace(
        whole,
        queries={q: text for q, text in whole.queries.items() if q in judged},
        exclusions={q: ids for q, ids in whole.exclusions.items() if q in judged},
        groups={q: group for q, group in whole.groups.items() if q in judged},
    )


def content_revision(layout: Layout) -> str:
    """Return a hash over the role and content of every file, 40 hex digits like a commit."""
    return _revision(_hashes(layout))


def _hashes(layout: Layout) -> dict[str, str]:
    hashes = {}
    for role, path in layout.files().items():
        try:
            with path.open("rb") as stream:
                hashes[role] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    return hashes


def _revision(hashes: Mapping[str, str]) -> str:
    listing = "".join(f"{role}={digest}\n" for role, digest in sorted(hashes.items()))
    return hashlib.sha256(listing.encode()).hexdigest()[:40]
