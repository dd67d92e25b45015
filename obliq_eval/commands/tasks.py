"""`obliq tasks`: what the tasks hold, official and mini ones apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from obliq_eval import show
from obliq_eval.data.files import lines, read_exclusions, read_qrels, read_queries
from obliq_eval.data.official import LICENCE, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.data.sources import MINI, MINI_FOLDER, content_revision, official_layout
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(add_completion=False, help="List the tasks: what they hold, what decides relevance, licences.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

MINI_FACTS = {
    "OBLIQ-Mini-Writing": ("analogue", "author's style", "public domain"),
    "OBLIQ-Mini-Math": ("analogue", "key lemma of the proof", "cc0-1.0"),
    "OBLIQ-Mini-Congress": ("tip-of-the-tongue", "rhetorical dynamic of a passage", "public domain"),
}
"""Mechanism, latent attribute and licence of the bundled tasks."""

COLUMNS = {
    "task": "task", "mechanism": "mechanism", "attribute": "latent attribute", "documents": "documents",
    "queries": "queries", "gold": "gold", "pooled": "gold + pooled", "exclusions": "exclusions", "licence": "licence",
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """One task in the list.

    Args:
        task: Its name.
        benchmark: `OBLIQ-Bench` or `OBLIQ-Mini`; results of the two are never comparable.
        mechanism: How a query relates to its documents.
        attribute: What decides relevance.
        documents: Size of the corpus.
        queries: Number of queries.
        gold: Number of gold judgments.
        pooled: Number of judgments with those over a pool of systems, or None.
        exclusions: Whether queries exclude documents.
        licence: Licence of the data.
        source: Where the data comes from.
        revision: Commit of the source, or the hash of its content.
    """

    task: str
    benchmark: str
    mechanism: str
    attribute: str
    documents: int
    queries: int
    gold: int
    pooled: int | None
    exclusions: bool
    licence: str
    source: str
    revision: str


def known_tasks() -> list[Facts]:
    """Return the tasks, official ones (published counts) before the bundled ones (counted in their files)."""
    return [*_official(), *_mini()]


def _official() -> Iterator[Facts]:
    for task in OFFICIAL.values():
        yield Facts(
            task.name, "OBLIQ-Bench", task.mechanism, task.attribute, task.documents, task.queries, task.gold,
            task.pooled, task.excludes, LICENCE, f"{REPOSITORY}, {task.folder}", REVISION,
        )  # fmt: skip


def _mini() -> Iterator[Facts]:
    for name, folder in MINI.items():
        if not (MINI_FOLDER / folder).is_dir():
            continue
        layout = official_layout(MINI_FOLDER / folder)
        mechanism, attribute, licence = MINI_FACTS[name]
        yield Facts(
            task=name,
            benchmark="OBLIQ-Mini",
            mechanism=mechanism,
            attribute=attribute,
            documents=sum(1 for _ in lines(layout.corpus)),
            queries=len(read_queries(layout.queries)),
            gold=len(read_qrels(layout.gold)),
            pooled=len(read_qrels(layout.pooled)) if layout.pooled else None,
            exclusions=bool(layout.exclusions and read_exclusions(layout.exclusions)),
            licence=licence,
            source="bundled with obliq",
            revision=content_revision(layout),
        )


@app.callback(invoke_without_command=True)
def list_tasks(context: typer.Context, *, as_json: Json = False) -> None:
    """List the tasks: the official ones, then the small bundled ones, which are not comparable with them."""
    if context.invoked_subcommand:
        return
    tasks = known_tasks()
    if as_json:
        show.payload([asdict(task) for task in tasks])
        return
    for benchmark, title in (
        ("OBLIQ-Bench", "OBLIQ-Bench, the official tasks (published counts; fetched when first used)"),
        ("OBLIQ-Mini", "OBLIQ-Mini, small tasks that come with the package (not comparable with OBLIQ-Bench)"),
    ):
        rows = [[getattr(task, key) for key in COLUMNS] for task in tasks if task.benchmark == benchmark]
        show.table(tuple(COLUMNS.values()), rows, title=title)


@app.command("show")
def show_task(name: Annotated[str, typer.Argument(metavar="TASK")], *, as_json: Json = False) -> None:
    """Show everything about one task."""
    tasks = {task.task: task for task in known_tasks()}
    if name not in tasks:
        raise UserError(f"no task is called {name!r}{near(name, tasks)}")
    if as_json:
        show.payload(asdict(tasks[name]))
    else:
        show.table(("field", "value"), list(asdict(tasks[name]).items()))
