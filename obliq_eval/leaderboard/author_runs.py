"""The authors' own runs, from a repository whose layout is not known: found by their content, scored here.

A run is recognised by its form; its task by its ids; its system by the words of its path. What is not recognised is
listed with the reason, so that nothing is skipped unseen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from obliq_eval import runs
from obliq_eval.data import hub, sources
from obliq_eval.data.files import read_queries
from obliq_eval.data.official import FILES, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.data.split import dev_queries
from obliq_eval.errors import UserError
from obliq_eval.evaluation import documents_hash, panels
from obliq_eval.leaderboard.author_files import Figure, look
from obliq_eval.leaderboard.author_names import recognise_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from obliq_eval.metrics import Panel
    from obliq_eval.records import Coverage, Dataset, Run

SAME_IDS = 0.95
"""Share of a run's query ids and document ids that must be the task's."""


@dataclass(frozen=True)
class TaskData:
    """One task to recognise runs of; the documents are read when a run's queries fit.

    Args:
        name: Name of the task.
        queries: Every query id of its query file.
        load: Returns its data.
    """

    name: str
    queries: frozenset[str]
    load: Callable[[], Dataset]

    @cached_property
    def data(self) -> Dataset:
        """The task's data."""
        return self.load()

    @cached_property
    def documents(self) -> dict[str, str]:
        """Every document id, by itself: runs share these strings, or twenty runs of 1,000 documents fill gigabytes."""
        return {document: document for document in self.data.corpus.documents["id"]}

    def share(self, run: Run) -> Run:
        """Return the same run with the task's own strings as document ids."""
        own = self.documents
        return replace(
            run,
            rankings={
                query: replace(ranking, documents=tuple(own.get(d, d) for d in ranking.documents))
                for query, ranking in run.rankings.items()
            },
        )


@dataclass(frozen=True)
class FoundRun:
    """A run whose task is recognised.

    Args:
        path: Its file in the repository, with the part of the file after a `#` if that holds several.
        task: The task.
        system: The paper's name of the system, or None if the path does not tell.
        why: How the task was recognised, and why the system was not.
        run: The run as it stands in the file.
        answered: How many of the task's judged queries it answers.
    """

    path: str
    task: TaskData
    system: str | None
    why: str
    run: Run
    answered: int

    @property
    def coverage(self) -> Coverage | None:
        """Which of the task's queries it covers; None if it answers less than 95 % of them and is not a split."""
        judged, data = self.task.data.judged, self.task.data
        got = {q for q, ranking in self.run.rankings.items() if len(ranking) and q in judged}
        if len(got) >= SAME_IDS * len(judged):
            return "all"
        dev = dev_queries(data.name, data.queries, data.groups)
        return "dev" if got == dev else "test" if got == set(data.queries) - dev else None


@dataclass(frozen=True)
class FoundTable:
    """A file with published figures.

    Args:
        path: Its file in the repository.
        figures: The numbers with the words around them.
    """

    path: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Found:
    """What was and was not recognised; every file is in exactly one of the three, a file of several runs in `runs`.

    Args:
        runs: Runs whose task is known.
        tables: Tables of results.
        other: `{path: reason}` for everything else.
    """

    runs: tuple[FoundRun, ...]
    tables: tuple[FoundTable, ...]
    other: Mapping[str, str]


@dataclass(frozen=True)
class Imported:
    """A run that is in the store now.

    Args:
        found: Where it came from.
        stored: The stored run.
        panels: Its scores, computed here.
    """

    found: FoundRun
    stored: runs.StoredRun
    panels: Mapping[str, Panel]


def official_tasks(names: Iterable[str] = tuple(OFFICIAL)) -> list[TaskData]:
    """Return the official tasks; only their query files are fetched now.

    Raises:
        UserError: If one is unknown or cannot be fetched.
    """
    return [TaskData(name, _query_ids(name), partial(sources.load, name)) for name in names]


def find(
    folder: Path,
    systems: Sequence[str],
    tasks: Sequence[TaskData] | None = None,
    given: Mapping[str, str] | None = None,
) -> Found:
    """Look into every file of a folder.

    Args:
        folder: The folder, a copy of the repository.
        systems: Names of the paper's systems.
        tasks: The tasks that runs may be of; by default the official ones.
        given: `{part of a path: system}` for paths that do not tell the system, or tell another.

    Raises:
        UserError: If it is no folder, or a task's data cannot be fetched.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name one, or a data set on the hub as owner/name")
    tasks = official_tasks() if tasks is None else tasks
    found, tables, other = [], [], {}
    hidden = {".git", ".cache"}  # of git and of the hub's client, no part of the repository
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if hidden & set(name.parts):
            continue
        held = look(path)
        if held.figures:
            tables.append(FoundTable(name.as_posix(), held.figures))
        reasons = []
        for one in held.runs:
            where = f"{name.as_posix()}#{one.part}" if one.part else name.as_posix()
            task, why = recognise_task(one.run, tasks)
            if task is None:
                reasons.append(f"a run ({_size(one.run)}), but {why}")
                continue
            system, doubt = recognise_system(where, systems, given or {})
            answered = sum(q in task.data.judged for q, ranking in one.run.rankings.items() if len(ranking))
            found.append(FoundRun(where, task, system, f"{why}; {doubt}".rstrip("; "), task.share(one.run), answered))
        if not held.figures and len(reasons) == len(held.runs):
            other[name.as_posix()] = "; ".join(dict.fromkeys(reasons)) or held.reason
        elif reasons:
            other[f"{name.as_posix()} (part)"] = "; ".join(dict.fromkeys(reasons))
    return Found(tuple(found), tuple(tables), other)


def import_all(found: Found, origin: str, revision: str | None = None, *, incomplete: bool = False) -> list[Imported]:
    """Score and store every run whose system is known, as run by the paper.

    Excluded documents and ids that the task does not know are dropped, counted in the manifest.

    Args:
        found: What `find` returned.
        origin: The repository or folder, for the manifest.
        revision: Its commit.
        incomplete: Also store runs that answer less than 95 % of the queries; the others score 0.
    """
    return [_import(one, origin, revision) for one in found.runs if held_back(one, incomplete=incomplete) is None]


def held_back(one: FoundRun, *, incomplete: bool = False) -> str | None:
    """Return why a recognised run is not imported, or None if it is."""
    if one.system is None:
        return "the path does not tell the system: name it with --system"
    if one.coverage is None and not incomplete:
        return f"answers only {one.answered} of {len(one.task.data.judged)} queries: --incomplete imports it"
    return None


def recognise_task(run: Run, tasks: Sequence[TaskData]) -> tuple[TaskData | None, str]:
    """Return the task whose ids a run uses and how much of them fits, or None and why there is none."""
    asked = {query for query, ranking in run.rankings.items() if len(ranking)}
    if not asked:
        return None, "it answers no query"
    shares = {task.name: len(asked & task.queries) / len(asked) for task in tasks}
    near = [task for task in tasks if shares[task.name] >= SAME_IDS]
    if not near:
        best = max(shares, key=lambda name: shares[name], default="")
        told = f" (at best {shares[best]:.0%}, {best})" if best and shares[best] else ""
        return None, f"its query ids are no task's{told}"
    documents = {document for query in asked for document in run.rankings[query].documents}
    fits = {task.name: len(documents & task.documents.keys()) / len(documents) for task in near}
    good = [task for task in near if fits[task.name] >= SAME_IDS]
    if len(good) != 1:
        told = ", ".join(f"{name} {fits[name]:.0%}" for name in fits)
        return None, f"its document ids fit {'several tasks' if good else 'no task'} ({told})"
    task = good[0]
    if told := _no_ranking(run, task.data):
        return None, told
    return task, f"{shares[task.name]:.0%} of its queries and {fits[task.name]:.0%} of its documents are the task's"


def stated(
    one: FoundRun, tables: Iterable[FoundTable], systems: Sequence[str], measure: str = "ndcg@10"
) -> list[float]:
    """Return what the repository's own tables state for a run under gold judgments, where their words name it."""
    subset = OFFICIAL[one.task.name].subset if one.task.name in OFFICIAL else one.task.name
    found = []
    for table in tables:
        for figure in table.figures:
            text = " ".join((table.path, *figure.words)).lower()
            plain = figure.measure == measure and "pool" not in text and subset in text
            if plain and one.system == recognise_system(text, systems, {})[0]:
                found.append(figure.value)
    return list(dict.fromkeys(found))


def _import(one: FoundRun, origin: str, revision: str | None) -> Imported:
    data = one.task.data
    counts: Counter[str] = Counter()
    rankings = {}
    unknown: frozenset[str] = frozenset(
        d for ranking in one.run.rankings.values() for d in ranking.documents if d not in one.task.documents
    )
    for query, ranking in one.run.rankings.items():
        if query not in data.judged:
            counts["queries without a judgment dropped"] += 1
            continue
        known = ranking.without(unknown, one.run.depth)
        rankings[query] = known.without(data.exclusions.get(query, frozenset()), one.run.depth)
        counts["documents that are not in the corpus dropped"] += len(ranking) - len(known)
        counts["excluded documents dropped from the answers"] += len(known) - len(rankings[query])
    run = replace(one.run, rankings=rankings)
    coverage = one.coverage or "all"
    asked = data if coverage == "all" else data.only(rankings)
    scored = panels(run, asked)
    manifest = runs.Manifest(
        task=data.name,
        data=runs.Data(data.name, data.revision, "import", documents_hash(data.exclusions)),
        model=runs.Model(
            f"paper/{one.system}",
            revision,
            {"origin": origin, "file": one.path, "imported": runs.content_hash(one.run)},
            one.system,
        ),
        depth=run.depth,
        n_queries=len(scored["gold"].queries),
        coverage=coverage,
        unanswered=scored["gold"].unanswered,
        counts={what: n for what, n in counts.items() if n},
        versions={},
        hardware="",
        who="paper",
        scores={name: panel.known() for name, panel in scored.items()},
    )
    return Imported(one, runs.store(run, manifest), scored)


def _no_ranking(run: Run, data: Dataset) -> str:
    """Say if the file is the task's own judgments or exclusions, which have a run's form."""
    pairs = [(q, d) for q, ranking in run.rankings.items() for d in ranking.documents]
    if all(d in data.exclusions.get(q, ()) for q, d in pairs):
        return f"it repeats the exclusions of {data.name}"
    for name, judgments in data.judgments().items():
        held = {(q, d) for q, d, _ in judgments.pairs()}
        if set(pairs) == held:
            return f"it repeats the {name} judgments of {data.name}"
    return ""


def _query_ids(task: str) -> frozenset[str]:
    if task not in OFFICIAL:
        return frozenset(sources.load(task).queries)
    folder = hub.snapshot(REPOSITORY, REVISION, OFFICIAL[task].folder, (FILES["queries"],))
    return frozenset(read_queries(folder / FILES["queries"]))


def _size(run: Run) -> str:
    return f"{len(run.rankings)} queries, at most {run.depth} documents each"
