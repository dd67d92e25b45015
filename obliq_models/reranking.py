"""Stored runs, reranked: from a reference to a run and a reranker to a run in the store, and what it will cost."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval import reference, runs
from obliq_eval.analyses.cost import Stage, stage_counts
from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.errors import UserError
from obliq_eval.evaluation import documents_hash
from obliq_models.llm.estimate import Estimate, estimate
from obliq_models.pipelines import name_of, revision_of
from obliq_models.rerankers import stage, sweep
from obliq_models.rerankers.progress import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from obliq_eval.records import Dataset, Run
    from obliq_eval.reference import Reference, System
    from obliq_eval.runs import StoredRun
    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.policies import Policy
    from obliq_models.rerankers.base import Reranker
    from obliq_models.rerankers.stage import Pools, Staged
    from obliq_models.rerankers.steps import Step
    from obliq_models.rerankers.sweep import Point, Sweep


@dataclass(frozen=True)
class Source:
    """A run that is to be reranked, with the data that it was searched in.

    Args:
        system: The run, exclusions applied.
        against: The task.
    """

    system: System
    against: Reference

    @property
    def data(self) -> Dataset:
        """The task's data."""
        assert self.against.data is not None  # noqa: S101 -- `open_run` takes tasks only
        return self.against.data

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.against.name

    @property
    def first(self) -> tuple[str, str | None]:
        """Full name and revision of the retriever."""
        manifest = self.system.manifest
        if manifest is None:
            return f"local/{self.alias}", None
        return manifest.model.name, manifest.model.revision

    @property
    def alias(self) -> str:
        """Short name of the retriever, in characters that a model's name may hold."""
        manifest = self.system.manifest
        given = self.system.name if manifest is None else manifest.model.alias or manifest.model.name.rpartition("/")[2]
        return re.sub(r"_{2,}", "_", re.sub(r"[^\w.-]+", "-", given)).strip("-_") or "run"

    def pools(self, depth: int) -> Pools:
        """Return the first documents of each query with their texts."""
        return stage.pools(self.system.run, self.data.queries, self.data.corpus.documents, self.task, depth)


def open_run(ref: str, task: str | None = None, coverage: str | None = None) -> Source:
    """Find a run and its task.

    Args:
        ref: A run of the store or a run file.
        task: The task or the folder; by default the run's own, which a file does not say.
        coverage: Which queries; by default those that the run covers.

    Raises:
        UserError: If the run or the task cannot be had, or do not fit.
    """
    if task is None:
        stored = runs.load(ref)
        if stored.manifest is None:
            raise UserError(f"{ref} is a file that does not say what it answers: give -t TASK, or a folder")
        task = stored.manifest.task
        if task not in OFFICIAL and task not in MINI:
            raise UserError(f"{ref} answers {task}, a folder of your own: give it with -t FOLDER")
        against = reference.open_task(task, coverage or stored.manifest.coverage)
    else:
        against = reference.open_task(task, coverage or "all")
        stored = reference.find_run(ref, against)
        if coverage is None and stored.manifest is not None and stored.manifest.coverage != "all":
            against = reference.open_task(task, stored.manifest.coverage)
    return Source(reference.fit(stored, against), against)


def build(
    source: Source, step: Step, llm: LLMSettings, client: Client | None = None, device: str | None = None
) -> Reranker:
    """Return the reranker for a run; a cross-encoder learns the task, from which it may take a prompt."""
    found = step.build(llm, client, device)
    if step.reranker != "cross-encoder":
        return found
    from obliq_eval.running import Request as Asked
    from obliq_eval.running import find_tasks

    folder = Path(source.against.source)
    asked = Asked("", folders=(folder,)) if folder.is_dir() else Asked("", tasks=(source.task,))
    return replace(found, task=find_tasks(asked)[0].metadata)  # type: ignore[type-var]


def run(source: Source, reranker: Reranker, threshold: float = stage.THRESHOLD) -> Staged:
    """Rerank; progress is shown on a terminal.

    Raises:
        UserError: If it is refused, see `rerankers.stage.rerank`.
    """
    return stage.rerank(source.pools(reranker.pool), reranker, threshold=threshold, watch=watch)


def costs(
    source: Source, reranker: Reranker, llm: LLMSettings, stored: Callable[[Request], bool] | None, **options: Any
) -> Estimate:
    """Return what reranking will cost, without a call.

    Args:
        source: The run.
        reranker: What would rerank it.
        llm: For its price table.
        stored: Whether an answer is in the cache; None if that cannot be known.
        **options: See `llm.estimate.estimate`: expected tokens of an answer, and calls per second.
    """

    def asked() -> Iterator[Request]:
        for query, pool in source.pools(reranker.pool).pools.items():
            yield from reranker.requests(query, pool)

    return estimate(asked(), stored=stored or (lambda _: False), prices=llm.price_table(), **options)


def keep(
    source: Source,
    found: Run,
    step: Step,
    reranker: Reranker,
    llm: LLMSettings,
    *,
    policy: Policy | None = None,
    counts: Mapping[str, int] | None = None,
    seconds: float | None = None,
) -> StoredRun:
    """Score a reranked run and put it into the store.

    Args:
        source: The run that was reranked.
        found: The new run.
        step: What reranked it, as data.
        reranker: The same as it was built.
        llm: The language model.
        policy: The policy that chose the step, which then gives the name.
        counts: What was counted.
        seconds: Wall-clock time.
    """
    then = policy or step
    name, revision = source.first
    panels = source.against.score(found)
    main = next(iter(panels.values()))
    manifest = source.system.manifest
    alias = f"{source.alias}-then-{name_of(then)}"
    first = {
        "run": source.system.run_id,
        "content": runs.content_hash(source.system.run),
        "model": name,
        "revision": revision,
        "settings": {} if manifest is None else manifest.model.settings,
    }
    settings = {"first": first, "step": step.table(), **reranker.settings(source.task)}
    data = source.data
    return runs.store(
        found,
        runs.Manifest(
            task=source.task,
            data=runs.Data(data.name, data.revision, data.corpus.source, documents_hash(data.exclusions)),
            model=runs.Model(f"local/{alias}", revision_of(name, revision, then, llm), settings, alias),
            depth=found.depth,
            n_queries=len(main.queries),
            coverage=source.against.coverage,
            unanswered=main.unanswered,
            counts=dict(counts or {}),
            seconds=seconds,
            versions=runs.versions(),
            hardware=runs.hardware(),
            seed=step.seed if step.reranker == "tourrank" else None,
            scores={judgments: panel.known() for judgments, panel in panels.items()},
        ),
    )


def quality(source: Source, found: Run) -> dict[str, float]:
    """Return NDCG@10 under each of the judgments."""
    panels = source.against.score(found, ["ndcg@10"])
    return {name: panel.means()["ndcg@10"] or 0.0 for name, panel in panels.items()}


def swept(
    source: Source, one: Sweep, base: Step, llm: LLMSettings, client: Client | None, threshold: float
) -> list[Point]:
    """Rerank for every value of a sweep and store every run: tournaments once at the most, list depths one by one.

    Raises:
        UserError: If a run is refused.
    """
    steps = one.steps(base)
    queries = max(len(source.system.run.rankings), 1)
    points: list[Point] = []
    if one.key == "k":
        for step in steps:
            reranker = build(source, step, llm, client)
            staged = run(source, reranker, threshold)
            kept = keep(source, staged.run, step, reranker, llm, counts=staged.counts, seconds=staged.seconds)
            points.append(_point(source, staged.run, step, staged.questions / queries, kept))
        return points
    most = steps[-1].build(llm, client)
    staged = run(source, most, threshold)
    for step in steps:
        whole = step == steps[-1]
        found = staged.run if whole else sweep.at(source.system.run, staged.answers, step.y)
        asked = staged.questions * step.y // steps[-1].y
        failed = sweep.failed_at(staged.answers, step.y)
        if asked and failed / asked > threshold:
            raise stage.refused(step.name, failed, asked, threshold)
        counts = (
            staged.counts
            if whole
            else stage_counts(Stage(step.name, queries, calls=asked)) | stage.failures(step.name, asked, failed)
        )
        kept = keep(source, found, step, step.build(llm, client), llm, counts=counts,
                    seconds=staged.seconds if whole else None)  # fmt: skip
        points.append(_point(source, found, step, asked / queries, kept))
    return points


def baseline(source: Source) -> Point:
    """Return the run as it was, as the point of a sweep without calls."""
    return sweep.Point(None, 0.0, quality(source, source.system.run), source.system.run_id)


def picture(path: Path, base: Point, lines: Mapping[str, Sequence[Point]], source: Source) -> None:
    """Draw a sweep under the main judgments."""
    from obliq_eval.drawing import save

    judgments = next(iter(source.against.judgments))
    about = f"{source.task}, {judgments} judgments, {len(source.against.main.queries):,} queries"
    save(sweep.picture(base, lines, judgments, about), path)


def _point(source: Source, found: Run, step: Step, calls: float, kept: StoredRun) -> Point:
    return sweep.Point(step, calls, quality(source, found), kept.name)
