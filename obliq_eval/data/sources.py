"""One `Dataset` from every source: a task name, a folder, a BEIR folder, the mirror, or a bundled mini set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.data import hub
from obliq_eval.data.corpus import CorpusFacts, open_corpus
from obliq_eval.data.files import read_exclusions, read_groups, read_qrels, read_queries
from obliq_eval.data.official import OFFICIAL, REPOSITORY, REVISION
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.records import Corpus, Dataset, Judgments

if TYPE_CHECKING:
    from collections.abc import Mapping

MINI_FOLDER = Path(__file__).parent / "mini"
MINI = {"OBLIQ-Mini-Writing": "writing", "OBLIQ-Mini-Math": "math", "OBLIQ-Mini-Congress": "congress"}
MIRROR_PREFIX = "mirror:"


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
    """

    dataset: Dataset
    facts: CorpusFacts
    source: str
    query_texts: Mapping[str, str] = field(default_factory=dict)


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
        kind = "beir" if (folder / "corpus.jsonl").exists() else "folder"
        return open_layout(find_layout(folder), folder.resolve().name, kind, str(folder))
    known = (*OFFICIAL, *MINI)
    raise UserError(f"{name!r} is neither a task nor a folder{near(name, known)} Tasks: {', '.join(known)}")


def _open_official(name: str) -> Loaded:
    root = hub.snapshot(REPOSITORY, REVISION, OFFICIAL[name].folder)
    key = f"{REPOSITORY}@{REVISION}/{OFFICIAL[name].folder}"
    return open_layout(official_layout(root), name, "hub", f"{REPOSITORY}, {OFFICIAL[name].folder}", (key, REVISION))


def find_layout(folder: Path) -> Layout:
    """Return the layout of a folder: the official one or BEIR's.

    Raises:
        UserError: If it has neither.
    """
    if (folder / "corpus" / "corpus.jsonl").exists():
        return official_layout(folder)
    if (folder / "corpus.jsonl").exists():
        return beir_layout(folder)
    raise UserError(
        f"{folder} holds neither corpus/corpus.jsonl (the official layout) nor corpus.jsonl (BEIR's layout); "
        "see `obliq data export --help` for an example of each"
    )


def official_layout(folder: Path) -> Layout:
    """Return the paths of OBLIQ-Bench's layout, which `groups.json` extends.

    Raises:
        UserError: For every file that is needed and missing.
    """
    judged = folder / "queries+qrels"
    return Layout(
        corpus=_needed(folder / "corpus" / "corpus.jsonl"),
        queries=_needed(judged / "queries.jsonl"),
        gold=_needed(judged / "qrels.tsv"),
        pooled=_optional(judged / "qrels_pool.tsv"),
        exclusions=_optional(judged / "per_query_excluded_ids.json"),
        groups=_optional(judged / "groups.json"),
    )


def beir_layout(folder: Path) -> Layout:
    """Return the paths of BEIR's layout; of several qrels files, `test.tsv` is taken.

    Raises:
        UserError: If a file is missing, or no qrels file is the obvious one.
    """
    found = sorted((folder / "qrels").glob("*.tsv"))
    if not found:
        raise UserError(f"{folder} has no qrels/*.tsv; a task needs judgments")
    test = folder / "qrels" / "test.tsv"
    if len(found) > 1 and test not in found:
        raise UserError(f"{folder}/qrels holds {', '.join(p.name for p in found)}; name one of them test.tsv")
    return Layout(
        corpus=_needed(folder / "corpus.jsonl"),
        queries=_needed(folder / "queries.jsonl"),
        gold=test if test in found else found[0],
        exclusions=_optional(folder / "per_query_excluded_ids.json"),
    )


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path} is missing; a task needs a corpus, queries and judgments")
    return path


def _optional(path: Path) -> Path | None:
    return path if path.is_file() else None


def open_layout(layout: Layout, name: str, kind: str, source: str, fixed: tuple[str, str] | None = None) -> Loaded:
    """Read a task's files.

    Args:
        layout: The paths.
        name: Name of the data set.
        kind: Kind of source, see `Corpus`.
        source: Where it came from, for people.
        fixed: Key of the corpus and revision, for sources that a commit identifies; otherwise the content is hashed.
    """
    key, revision = fixed or (f"sha256:{_sha256(layout.corpus)}", content_revision(layout))
    queries = read_queries(layout.queries)
    gold = read_qrels(layout.gold)
    pooled = read_qrels(layout.pooled) if layout.pooled else None
    exclusions = read_exclusions(layout.exclusions) if layout.exclusions else {}
    groups = read_groups(layout.groups) if layout.groups else {}
    documents, facts = open_corpus(layout.corpus, key)
    dataset = assemble(Corpus(name, revision, documents, kind), queries, gold, pooled, exclusions, groups)
    return Loaded(dataset, facts, source, queries)


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
    digest = hashlib.sha256()
    for role, path in sorted(layout.files().items()):
        digest.update(f"{role}={_sha256(path)}\n".encode())
    return digest.hexdigest()[:40]


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
