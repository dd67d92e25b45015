"""Taking in runs: all that speaks against a submission at once, a copy with what each query scored, and its check."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock

from obliq_eval import runs
from obliq_eval.catalogue import catalogue
from obliq_eval.data.corpus import ids_of
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI, open_source
from obliq_eval.data.split import covered
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.evaluation import panels
from obliq_eval.home import home, whole_folder
from obliq_eval.leaderboard.submissions import (
    ABOUT,
    FOLDERS,
    MANIFEST,
    RUN,
    SCORES,
    About,
    Submitted,
    load_submissions,
    read_about,
    scores_text,
)
from obliq_eval.run_files import Form, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_eval.data.sources import Loaded
    from obliq_eval.leaderboard.entries import Exposure
    from obliq_eval.manifest import Manifest
    from obliq_eval.metrics import Panel
    from obliq_eval.records import Coverage, Run
    from obliq_eval.runs import StoredRun

DEPTH = 1000  # the deepest measure is Recall@1000; what lies below is not kept
COUNTED = ("unanswered", "unjudgeable", "unknown", "judged_at_10", "unjudged_at_10")
LOG = logging.getLogger("obliq")
TOLERANCE = 1e-9  # other processors may add up in another order


@dataclass(frozen=True)
class Taken:
    """A run that may stand on a board.

    Args:
        manifest: What made it, with the hash of the run as it is kept.
        run: The first 1,000 documents of every answer.
        panels: `{judgments: panel}` over the covered queries.
    """

    manifest: Manifest
    run: Run
    panels: Mapping[str, Panel]


@dataclass(frozen=True)
class Verified:
    """One submitted run under one set of judgments, scored again.

    Args:
        system: Its name.
        task: Name of the task.
        judgments: `gold` or `pooled`; empty if the run cannot be scored.
        stated: NDCG@10 as stored.
        recomputed: NDCG@10 from the run.
        difference: Largest difference over all queries and measures.
        problem: Why it cannot be scored, or what else is wrong; empty if nothing is.
    """

    system: str
    task: str
    judgments: str
    stated: float | None
    recomputed: float | None
    difference: float | None
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether the stored numbers follow from the run."""
        return not self.problem and self.difference is not None and self.difference <= TOLERANCE


def add(ref: str, root: Path, given: Mapping[str, Any], queries: Coverage | None = None) -> list[Path]:
    """Check a submission and copy it into a leaderboard's folder; runs of other tasks that stand there stay.

    Args:
        ref: A folder with `submission.toml` and one folder for each run, or a run as `runs.load` finds it.
        root: The leaderboard's folder.
        given: Fields of `About` that take the place of what the folder or the table of models says.
        queries: Which queries are kept and scored; by default those that the run covers.

    Returns:
        The folders that were written.

    Raises:
        UserError: If anything speaks against it; all problems at once.
    """
    about, stored = _find(ref, root, given.get("system"))
    about = replace(about, **{**given, "exposure": _joined(about.exposure, given.get("exposure"))})
    problems = list(about.problems())
    problems += [
        f"{entry.name} is the run of an oracle, a system that is shown judgments: add it with --oracle"
        for entry in stored
        if entry.manifest is not None and entry.manifest.oracle and not about.oracle
    ]
    if not stored:
        problems.append(f"no folder with {MANIFEST} and {RUN} in it; each run needs one")
    data: dict[str, Loaded] = {}
    taken = [run for entry in stored if (run := take(entry, data, problems, queries))]
    targets = {kind: root / kind / about.slug for kind in FOLDERS}
    there = {target: read_about(target / ABOUT).system for target in targets.values() if (target / ABOUT).is_file()}
    problems += [
        f"{target} holds another system, {system!r}; choose a name that differs more"
        for target, system in there.items()
        if system != about.system
    ]
    tasks = [run.manifest.task for run in taken]
    problems += [f"{task} is answered by more than one run" for task in sorted(set(tasks)) if tasks.count(task) > 1]
    raise_all(problems, f"{ref} cannot be added")
    parts = {kind: [run for run in taken if run.manifest.task in names] for kind, names in FOLDERS.items()}
    for kind, part in parts.items():
        for run in part:
            _say_what_is_unusual(run.manifest, about, targets[kind] / run.manifest.task)
        if part:
            _write(targets[kind], about, part)
    return [targets[kind] / run.manifest.task for kind, part in parts.items() for run in part]


def take(
    stored: StoredRun, data: dict[str, Loaded], problems: list[str], queries: Coverage | None = None
) -> Taken | None:
    """Read and score a run, or add everything that speaks against it to `problems` and return None.

    Args:
        stored: A run with a manifest.
        data: Data of the tasks that were opened so far; this one's is added.
        problems: One sentence each.
        queries: A part of the queries that the run covers, by default all of them.
    """
    found = list(_misfits(stored, data))
    problems += found
    manifest = stored.manifest
    if found or manifest is None:
        return None
    depth = min(manifest.depth, DEPTH)
    run = stored.read().without({}, depth)
    whole = data[manifest.task].dataset
    part = covered(whole, queries or manifest.coverage)
    if queries not in {None, manifest.coverage}:
        if not part.queries.keys() <= covered(whole, manifest.coverage).queries.keys():
            problems.append(f"{stored.name} covers the {manifest.coverage} queries, so not all of the {queries} ones")
            return None
        run = run.only(part.queries)
        manifest = replace(manifest, coverage=queries, seconds=None)  # the time was that of all of its queries
    scored = panels(run.only(part.queries), part)
    if len(scored["gold"].queries) < 2:
        problems.append(f"{stored.name} covers {len(scored['gold'].queries)} queries; an interval needs at least 2")
        return None
    kept = replace(
        manifest,
        depth=depth,
        content=runs.content_hash(run),
        n_queries=len(scored["gold"].queries),
        unanswered=scored["gold"].unanswered,
        scores={name: panel.known() for name, panel in scored.items()},
    )
    return Taken(kept, run, scored)


def verify(root: Path) -> Iterator[Verified]:
    """Score every submitted run again, and compare what each query scores with what is stored."""
    data: dict[str, Loaded] = {}
    for submitted in load_submissions(root):
        problems: list[str] = []
        again = take(submitted.stored, data, problems)
        system, task = submitted.about.system, submitted.manifest.task
        if problems or again is None:
            yield Verified(system, task, "", None, None, None, "; ".join(problems))
            continue
        for name in dict.fromkeys((*submitted.panels, *again.panels)):
            yield _compared(system, task, name, submitted, again)


def _compared(system: str, task: str, judgments: str, submitted: Submitted, again: Taken) -> Verified:
    old, new = submitted.panels.get(judgments), again.panels.get(judgments)
    if old is None or new is None or old.queries != new.queries or old.measures != new.measures:
        return Verified(system, task, judgments, None, None, None, "other queries or measures; add it again")
    gaps = [float(np.abs(old.values[m] - new.values[m]).max()) for m in old.measures]
    stated = submitted.manifest.scores.get(judgments, {})
    gaps += [abs(stated.get(m, np.inf) - v) for m, v in new.known().items()]
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in COUNTED]
    pairs += [(n, getattr(submitted.manifest, n), getattr(again.manifest, n)) for n in ("n_queries", "depth")]
    wrong = [name for name, before, after in pairs if before != after]
    problem = f"{', '.join(wrong)}: not as recomputed" if wrong else ""
    return Verified(system, task, judgments, old.mean("ndcg@10"), new.mean("ndcg@10"), max(gaps), problem)


def _joined(old: Exposure, new: Exposure | None) -> Exposure:
    """Return what is newly said, and what was said before where nothing is."""
    return replace(old, **{key: value for key, value in vars(new).items() if value is not None}) if new else old


def _find(ref: str, root: Path, system: str | None) -> tuple[About, list[StoredRun]]:
    """Return what a submission says about its system, by default its model, and its runs."""
    folder = Path(ref)
    if (folder / ABOUT).is_file():
        stored = [runs.load(str(path.parent)) for path in sorted(folder.glob(f"*/{MANIFEST}"))]
        return read_about(folder / ABOUT), stored
    if folder.is_dir() and not (folder / MANIFEST).is_file():
        raise UserError(f"{ref} holds neither {ABOUT} (a submission) nor {MANIFEST} (a stored run)")
    run = runs.load(ref)
    if run.manifest is None:
        raise UserError(f"{ref} has no manifest: `obliq runs import` gives it one; then add the stored run")
    model = run.manifest.model
    system = system or model.alias or model.name
    known = catalogue().get(system) if system == model.alias else None
    about = About(
        system=system,
        description=known.summary if known else "",
        licence=known.licence if known else "",
        oracle=run.manifest.oracle,
    )
    for kind in FOLDERS:
        if (path := root / kind / about.slug / ABOUT).is_file() and (there := read_about(path)).system == about.system:
            return there, [run]
    return about, [run]


def _misfits(stored: StoredRun, data: dict[str, Loaded]) -> Iterator[str]:
    """Yield what speaks against a run, one sentence each."""
    manifest = stored.manifest
    if manifest is None:
        yield f"{stored.name} has no manifest: `obliq runs import` gives it one"
        return
    try:
        run = stored.read()
    except UserError as error:
        yield str(error)
        return
    if manifest.depth < 1 or manifest.depth != run.depth:
        yield (
            f"{stored.name} is {run.depth} documents deep, but its {MANIFEST} says {manifest.depth}: "
            "state one depth, 1 or more"
        )
    task, known = manifest.task, (*OFFICIAL, *MINI)
    if task not in known:
        yield f"{stored.name} answers {task!r}, which is not a task of a board{near(task, known)}"
        return
    if task not in data:
        data[task] = open_source(task)
    revision = data[task].dataset.revision
    if manifest.data.revision != revision:
        yield (
            f"{stored.name} searched revision {manifest.data.revision or '(not stated)'} of {task}, the board is about "
            f"revision {revision}: run it again on that"
        )
    yield from _unknown_ids(stored.name, run, manifest, data[task])


def _unknown_ids(name: str, run: Run, manifest: Manifest, loaded: Loaded) -> Iterator[str]:
    task, dataset = manifest.task, loaded.dataset
    part = covered(dataset, manifest.coverage)
    if strangers := [q for q in run.rankings if q not in loaded.query_texts]:
        yield f"{name}: {_some(strangers)} no queries of {task}; is it a run for another task?"
    elif not any(len(run.rankings[q]) for q in part.queries if q in run.rankings):
        yield f"{name} answers none of the {len(part.queries):,} {manifest.coverage} queries of {task}"
    elif outside := [q for q in run.rankings if q in dataset.queries and q not in part.queries]:
        yield f"{name} says that it covers the {manifest.coverage} queries, but {_some(outside)} outside of them"
    documents = {document for ranking in run.rankings.values() for document in ranking.documents}
    if unknown := sorted(documents.difference(ids_of(dataset.corpus.documents))):
        yield f"{name}: {_some(unknown)} no documents of {task}; is it a run for another task?"
    none: frozenset[str] = frozenset()
    if excluded := [
        f"{d} (query {q})" for q, r in run.rankings.items() for d in r.documents if d in dataset.exclusions.get(q, none)
    ]:
        yield f"{name}: {_some(excluded)} excluded for their query; leave them out before the cut-off"


def _some(names: Sequence[str]) -> str:
    """Return a count with examples and the verb that follows it."""
    return f"{len(names):,} {'is' if len(names) == 1 else 'are'} ({', '.join(map(repr, names[:3]))})"


def _say_what_is_unusual(manifest: Manifest, about: About, target: Path) -> None:
    if (target / RUN).exists():
        LOG.warning("%s stood there already and is replaced; it counts as run by: %s", target, about.ran_by)
    if about.system not in {manifest.model.name, manifest.model.alias}:
        LOG.warning("a run of %s is added as %s", manifest.model.name, about.system)


def _write(target: Path, about: About, taken: Sequence[Taken]) -> None:
    lock = home() / "leaderboard.lock"  # two at once would each copy what stood there, and one would be lost
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock), whole_folder(target) as part:
        if target.is_dir():
            shutil.copytree(target, part, dirs_exist_ok=True)
        (part / ABOUT).write_text(about.to_toml(), encoding="utf-8")
        for run in taken:
            folder = part / run.manifest.task
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _write_compact(run.run, folder / RUN)
            (folder / MANIFEST).write_text(run.manifest.to_json(), encoding="utf-8")
            (folder / SCORES).write_text(scores_text(run.panels, run.manifest.content), encoding="utf-8")


def _write_compact(run: Run, path: Path) -> None:
    """Write a run in the form of the run store, in the encoding that takes the least room: boards live in git."""
    import pyarrow.parquet as pq

    write_run(run, path, Form.PARQUET)
    pq.write_table(
        pq.read_table(path),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=["query_id", "doc_id"],
        use_byte_stream_split=["score"],
    )
