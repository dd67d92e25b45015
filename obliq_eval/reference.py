"""What runs are judged against, and whether a given run may be: same task, same data, same queries, known documents."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval import metrics, runs
from obliq_eval.data.files import read_qrels
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import datasets

    from obliq_eval.manifest import Manifest
    from obliq_eval.metrics import Panel
    from obliq_eval.records import Coverage, Dataset, Judgments, Run
    from obliq_eval.runs import StoredRun

COVERAGES = ("all", "dev", "test", "held-out")
NAMED = 5  # how many ids of a list are named in a sentence


@dataclass(frozen=True)
class Reference:
    """Judgments with the data that they belong to, where that is known.

    Args:
        name: Name of the task, or of the qrels file.
        judgments: By name, the main ones first: `gold`, and `pooled` where it exists; each has a relevant document.
        coverage: Which of the task's queries these are.
        data: The data set of the covered queries; None for qrels files.
        left_out: Queries of the task outside the coverage; a run's answers to them are not looked at.
        source: The task or the folder as it was given; empty for qrels files.
    """

    name: str
    judgments: Mapping[str, Judgments]
    coverage: Coverage = "all"
    data: Dataset | None = None
    left_out: frozenset[str] = frozenset()
    source: str = ""

    @property
    def main(self) -> Judgments:
        """The judgments that name the queries: gold where there is any."""
        return next(iter(self.judgments.values()))

    @property
    def revision(self) -> str | None:
        """Revision of the data, if it is known."""
        return None if self.data is None else self.data.revision

    @property
    def exclusions(self) -> Mapping[str, frozenset[str]]:
        """What each query may not return."""
        return {} if self.data is None else self.data.exclusions

    def score(self, run: Run, measures: Sequence[str] | None = None) -> dict[str, Panel]:
        """Score a run under each of the judgments; by default all get the measures that suit the main ones."""
        panels: dict[str, Panel] = {}
        for name, judgments in self.judgments.items():
            panels[name] = metrics.score(run, judgments, measures)
            measures = measures or panels[name].measures
        return panels


@dataclass(frozen=True)
class System:
    """A run that fits a reference.

    Args:
        name: What people see: the model's alias or full name, or the name of the file.
        run: Its answers to the covered queries, exclusions applied.
        delivered: The same answers as they were read, excluded documents among them.
        run_id: Id of the stored run, or the path of the file.
        manifest: What made the run; None for a file.
        warnings: What was dropped or is missing, one sentence each.
    """

    name: str
    run: Run
    delivered: Run
    run_id: str
    manifest: Manifest | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def revision(self) -> str | None:
        """Revision of the data that was searched, if it is known."""
        return None if self.manifest is None else self.manifest.data.revision


def open_task(task: str, coverage: str = "all") -> Reference:
    """Return a task's judgments; queries without a relevant document under the main ones are in none.

    Args:
        task: A task, or a folder in the official or BEIR layout.
        coverage: One of `COVERAGES`.

    Raises:
        UserError: If the task or the coverage is unknown, or no query is left.
    """
    from obliq_eval.data.sources import load
    from obliq_eval.data.split import covered

    whole = load(task)
    data = covered(whole, parse_coverage(coverage))
    searched = set(data.gold.queries) or set(data.queries)
    judgments = {"gold": data.gold} if data.gold.queries else {}
    if data.pooled is not None and (pooled := data.pooled.only(searched)).queries:
        judgments["pooled"] = pooled
    if not judgments:
        raise UserError(f"{whole.name}: no query has a relevant document (a grade above 0), so nothing can be scored")
    left_out = frozenset(whole.queries) - set(data.queries)
    return Reference(whole.name, judgments, parse_coverage(coverage), data, left_out, task)


def open_qrels(qrels: Path, pooled: Path | None = None) -> Reference:
    """Return the judgments of a qrels file, and those over a pool beside them.

    Raises:
        UserError: If a file is not of a known form, or no query has a relevant document.
    """
    gold = read_qrels(qrels)
    if not gold.queries:
        raise UserError(f"{qrels}: no query has a relevant document (a grade above 0); check that these are the qrels")
    judgments = {"gold": gold}
    if pooled is not None:
        judgments["pooled"] = read_qrels(pooled).only(gold.queries)
        if not judgments["pooled"].queries:
            raise UserError(f"{pooled} judges none of the queries of {qrels}; check that the two belong together")
    return Reference(qrels.name, judgments)


def choose(task: str | None, qrels: Path | None, pooled: Path | None, coverage: str) -> Reference:
    """Return what the options `-t`, `--qrels`, `--pooled` and `--queries` mean together.

    Raises:
        UserError: If they contradict each other.
    """
    if (task is None) == (qrels is None):
        raise UserError("give either -t TASK or --qrels FILE: what the run is judged against")
    if task is not None:
        if pooled is not None:
            raise UserError("--pooled goes with --qrels; a task brings its own pooled judgments")
        return open_task(task, coverage)
    if parse_coverage(coverage) != "all":
        raise UserError(f"--queries {coverage} needs -t TASK: the split depends on the task's name and groups")
    assert qrels is not None  # noqa: S101 -- one of the two is given
    return open_qrels(qrels, pooled)


def find_run(ref: str, reference: Reference, part: str | None = None) -> StoredRun:
    """Find a run as `runs.load` does; the name of a model alone means its newest run of the task.

    Raises:
        UserError: If nothing or more than one run is meant, or a model that is known has not been run on the task.
    """
    if reference.data is not None and ":" not in ref and not Path(ref).exists():
        with suppress(UserError):
            return runs.load(f"{ref}:{reference.name}", part)
        if _is_model(ref):
            option = "--data" if Path(reference.source).is_dir() else "-t"
            where = shlex.quote(reference.source or reference.name)
            raise UserError(f"no run of {ref} on {reference.name} yet: obliq run -m {ref} {option} {where}")
    return runs.load(ref, part)


def fit(stored: StoredRun, reference: Reference) -> System:
    """Read a run and check that it can be judged against this reference.

    Raises:
        UserError: If it answers another task, searched another revision of the data, covers other queries, answers
            none of the judged queries, or returns documents that the corpus does not have; all problems at once.
    """
    name, manifest = _label(stored), stored.manifest
    if problem := _misfit(name, manifest, reference):
        raise UserError(problem)
    whole = stored.read()
    delivered = whole.only(query for query in whole.rankings if query not in reference.left_out)
    common = [q for q in reference.main.queries if q in delivered.rankings]
    if not common:
        raise UserError(
            f"{name} answers none of the {len(reference.main.queries)} judged queries of {reference.name} (the run has "
            f"{some(whole.rankings)}, the judgments have {some(reference.main.queries)}); is it a run for another task?"
        )
    _check_documents(name, delivered, reference)
    run = delivered.without(reference.exclusions, delivered.depth)
    warnings = _warnings(name, run, delivered, reference)
    return System(name, run, delivered, stored.name, manifest, tuple(warnings))


def distinct(systems: Sequence[System]) -> tuple[System, ...]:
    """Return the systems with names that tell them apart: where two share one, the run's id stands behind it."""
    names = [system.name for system in systems]
    twice = {name for name in names if names.count(name) > 1}
    renamed = [replace(s, name=f"{s.name} ({s.run_id.rpartition('-')[2]})") if s.name in twice else s for s in systems]
    if len({system.name for system in renamed}) == len(renamed):
        return tuple(renamed)
    return tuple(replace(s, name=f"{number}. {s.name}") for number, s in enumerate(renamed, start=1))


def some(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    every = list(names)
    rest = len(every) - NAMED
    return ", ".join(map(repr, every[:NAMED])) + (f" and {rest:,} more" if rest > 0 else "")


def _is_model(name: str) -> bool:
    from obliq_eval.catalogue import resolve

    with suppress(UserError):
        return bool(resolve(name))
    return False


def parse_coverage(value: str) -> Coverage:
    """Return which queries an option `--queries` asks for.

    Raises:
        UserError: If there is no such part.
    """
    for known in COVERAGES:
        if value == known:
            return known  # type: ignore[return-value] # COVERAGES are the values of Coverage
    raise UserError(f"--queries {value!r} is not one of {', '.join(COVERAGES)}{near(value, COVERAGES)}")


def _label(stored: StoredRun) -> str:
    if stored.manifest is None:
        return stored.path.name.removesuffix(".gz").rpartition(".")[0] or stored.path.name
    return stored.manifest.model.alias or stored.manifest.model.name


def _misfit(name: str, manifest: Manifest | None, reference: Reference) -> str:
    """Return what the manifest says against judging the run here, in one sentence, or nothing."""
    if manifest is None or reference.data is None:
        return ""
    run = f"{name} (run {manifest.run_id})"
    if reference.name not in {manifest.task, manifest.data.name}:
        return f"{run} answers {manifest.task}, not {reference.name}: judge it with -t {manifest.task}"
    if manifest.data.revision not in {None, reference.revision}:
        return (
            f"{run} searched revision {manifest.data.revision} of {reference.name}, but the data here is revision "
            f"{reference.revision}: run it again, since scores of different data cannot be compared"
        )
    if manifest.coverage not in {"all", reference.coverage}:
        return f"{run} covers the {manifest.coverage} queries alone: judge it with --queries {manifest.coverage}"
    return ""


def _check_documents(name: str, run: Run, reference: Reference) -> None:
    """Refuse documents that the corpus does not have."""
    if reference.data is None:
        return
    returned = dict.fromkeys(d for ranking in run.rankings.values() for d in ranking.documents)
    if unknown := _absent(returned, reference.data.corpus.documents):
        raise UserError(
            f"{name} returns {len(unknown):,} documents that {reference.name} does not have: {some(unknown)}; "
            "is it a run for another task or another revision of the data?"
        )


def _absent(wanted: Mapping[str, None], documents: datasets.Dataset) -> list[str]:
    """Return the wanted ids that a corpus lacks, in their order, without holding all of its ids at once."""
    from obliq_eval.data.corpus import ids_of

    left = dict(wanted)
    for identifier in ids_of(documents):
        left.pop(identifier, None)
    return list(left)


def _warnings(name: str, run: Run, delivered: Run, reference: Reference) -> Iterator[str]:
    """Yield what was dropped and what is missing."""
    judged = reference.main.queries
    dropped = sum(map(len, delivered.rankings.values())) - sum(map(len, run.rankings.values()))
    if dropped:
        yield f"{name}: {dropped:,} excluded documents were dropped from its answers, and those below them moved up"
    unanswered = [q for q in judged if q not in run.rankings or not len(run.rankings[q])]
    if unanswered:
        yield f"{name}: {len(unanswered):,} of {len(judged):,} queries got no answer and score 0: {some(unanswered)}"
    unjudgeable = [*reference.main.unjudgeable, *(q for q in run.rankings if q not in reference.main.grades)]
    if unjudgeable:
        yield f"{name}: {len(unjudgeable):,} queries have no relevant document and are not scored: {some(unjudgeable)}"
    grades = reference.main.grades
    if not any(d in grades[q] for q in judged if q in run.rankings for d in run.rankings[q].documents):
        yield f"{name}: no document that it returns is judged; are its document ids those of {reference.name}?"
