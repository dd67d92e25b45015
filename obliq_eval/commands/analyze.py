"""`obliq analyze`: the paper's analyses over anyone's runs, as tables, data and pictures."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import markup, reference, show
from obliq_eval.analyses import cost as costs
from obliq_eval.analyses import degeneracy as firsts
from obliq_eval.analyses import depth as depths
from obliq_eval.analyses import failures as classes
from obliq_eval.analyses import oracle as ceilings
from obliq_eval.analyses import recall as recalls
from obliq_eval.analyses import shuffle as shuffles
from obliq_eval.errors import UserError, near, raise_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

    from obliq_eval.records import Judgments, Run
    from obliq_eval.reference import Reference, System

app = typer.Typer(
    help="The paper's analyses over stored runs: tables, JSON, pictures.", no_args_is_help=True, add_completion=False
)

RUN = "Run id or the start of it, MODEL:TASK, a model that was run on the task, or a run file of any form."
Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help=RUN)]
Task = Annotated[str | None, typer.Option("-t", "--task", "--data", help="Task, or a folder in a known layout.")]
Qrels = Annotated[Path | None, typer.Option("--qrels", help="Qrels file, in place of a task.")]
Queries = Annotated[str, typer.Option("--queries", help="Which of the task's queries: all, dev, test or held-out.")]
Judged = Annotated[str, typer.Option("--judgments", help="gold, or pooled where the task has them.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything at full precision as JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Latex = Annotated[bool, typer.Option("--latex", help="Print a LaTeX table (booktabs).")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture: FILE.svg or FILE.png.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Pool = Annotated[int, typer.Option(min=1, help="How many first documents a reranker sees.")]
TIMED = "Also load each run's model and time so many queries one at a time, on this machine."


@dataclass(frozen=True)
class Setting:
    """What is analysed.

    Args:
        against: The task, or the qrels.
        judgments: Name of the judgments that count.
        systems: The runs, named so that they can be told apart.
    """

    against: Reference
    judgments: str
    systems: tuple[System, ...]

    @property
    def judged(self) -> Judgments:
        """The judgments that count."""
        return self.against.judgments[self.judgments]

    @property
    def about(self) -> str:
        """Task, judgments and queries, for people."""
        chosen = "" if self.against.coverage == "all" else f"{self.against.coverage} "
        return f"{self.against.name}, {self.judgments} judgments, {len(self.judged.queries):,} {chosen}queries"


@dataclass(frozen=True)
class Output:
    """Where the result goes.

    Raises:
        UserError: If more than one form is asked for, or the picture's format is unknown.
    """

    as_json: bool
    as_markdown: bool
    as_latex: bool
    plot: Path | None

    def __post_init__(self) -> None:
        """Refuse what cannot be done before anything is computed."""
        if self.as_json + self.as_markdown + self.as_latex > 1:
            raise UserError("--json, --markdown and --latex exclude each other: choose one")
        if self.plot is not None:
            from obliq_eval.drawing import check_target

            check_target(self.plot)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str) -> None:
        """Print one table in the form that was asked for; nothing for JSON, which has everything in one value."""
        if self.as_json:
            return
        if self.as_markdown or self.as_latex:
            form = markup.markdown if self.as_markdown else markup.latex
            sys.stdout.write(form(columns, rows, title) + "\n\n")
        else:
            show.table(columns, rows, title=title)

    def note(self, message: str) -> None:
        """Print a line that belongs to the table; on standard error where the output is for a program."""
        show.say(message, stderr=self.as_json or self.as_markdown or self.as_latex)

    def finish(self, setting: Setting, results: Mapping[str, Any], draw: Callable[[], Figure], **more: object) -> None:
        """Print the JSON and draw the picture, if they were asked for."""
        if self.as_json:
            about = {
                "task": setting.against.name,
                "data_revision": setting.against.revision,
                "queries": setting.against.coverage,
                "judgments": setting.judgments,
                "n_queries": len(setting.judged.queries),
                "runs": {system.name: system.run_id for system in setting.systems},
            }
            show.payload({**about, **more, "results": results})
        if self.plot is not None:
            from obliq_eval.drawing import save

            save(draw(), self.plot)
            self.note(f"picture: {self.plot}")


@app.command()
def recall(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    judgments: Judged = "gold",
    k: Annotated[list[int] | None, typer.Option("-k", min=1, help="A cut-off in place of the usual; repeat.")] = None,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """Recall@k for k = 10 to 1000: what a later stage could still reach (Table 6)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, judgments)
    cuts = sorted(set(k)) if k else recalls.DEPTHS
    curves = {s.name: recalls.recall_curve(s.run, setting.judged, cuts) for s in setting.systems}
    rows = [curve.row(name) for name, curve in curves.items()]
    output.table(recalls.columns(cuts), rows, f"Recall@k: {setting.about}")
    output.finish(setting, _records(curves), lambda: _plots().recall(curves, setting.about))


@app.command()
def depth(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    judgments: Judged = "gold",
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """NDCG@k by k, and each query's gain over the first run (Figure 3)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, judgments)
    curves = {s.name: depths.depth_curve(s.run, setting.judged) for s in setting.systems}
    rows = [curve.row(name) for name, curve in curves.items()]
    output.table(depths.columns(), rows, f"NDCG@k: {setting.about}")
    first, *others = _scored(setting)
    gains = {s.name: depths.gains(first[1], panel) for s, panel in others}
    baseline = setting.systems[0].name
    if gains:
        rows = [gain.row(baseline, name) for name, gain in gains.items()]
        output.table(depths.GAIN_COLUMNS, rows, f"Gain in NDCG@10 by query: {setting.about}")
    output.finish(
        setting,
        {"curves": _records(curves), "gains": _records(gains)},
        lambda: _plots().depth(curves, gains, baseline, setting.about),
        baseline=baseline,
    )


@app.command()
def shuffle(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    judgments: Judged = "gold",
    pool: Pool = 100,
    orders: Annotated[int, typer.Option("--shuffles", min=1, help="How many random orders, at most 100,000.")] = 200,
    seed: Seed = 0,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """NDCG@10 against random orders of the same documents (Table M.1); those below the pool stay in place."""
    shuffles.check(pool, orders, seed)
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, judgments)
    found = {
        s.name: shuffles.shuffle(s.run, setting.judged, pool=pool, shuffles=orders, seed=seed) for s in setting.systems
    }
    rows = [result.row(name) for name, result in found.items()]
    output.table(shuffles.COLUMNS, rows, f"Real against shuffled order: {setting.about}")
    one = next(iter(found.values()))
    output.note(
        f"{one.shuffles:,} shuffles; {one.level:.0%} percentile interval of the ratio over {one.resamples:,} resamples "
        f"of the queries; seed {one.seed}"
    )
    output.finish(setting, _records(found), lambda: _plots().shuffle(found, setting.about))


@app.command()
def oracle(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    judgments: Judged = "gold",
    ceiling: Annotated[
        str | None, typer.Option("--oracle", metavar="RUN", help="A run of a system that saw the judgments.")
    ] = None,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """Distance to a perfect order of what was found, and to an oracle's run (Appendix O)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, judgments)
    top = None if ceiling is None else _fitted(ceiling, setting.against)
    given = None if top is None else top.run
    found = {s.name: ceilings.ceiling(s.run, setting.judged, given) for s in setting.systems}
    rows = [result.row(name) for name, result in found.items()]
    output.table(ceilings.columns(), rows, f"Distance to a ceiling, NDCG@10: {setting.about}")
    output.finish(
        setting,
        _records(found),
        lambda: _plots().oracle(found, setting.about),
        oracle=None if top is None else top.run_id,
    )


@app.command()
def failures(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    judgments: Judged = "gold",
    candidates: Annotated[
        str | None,
        typer.Option("--candidates", metavar="RUN", help="The run whose documents were reranked; else each run's own."),
    ] = None,
    pool: Pool = classes.POOL_DEPTH,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """Queries helped, hurt, tied, or at zero with both the first run and another (Table 7)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, judgments)
    if len(setting.systems) < 2:
        raise UserError("helped and hurt need two runs: name the baseline first, then what is compared with it")
    _refuse_repeats(setting.systems)
    given = None if candidates is None else _fitted(candidates, setting.against).run
    (first, base), *others = _scored(setting)
    found = {
        (first.name, s.name): classes.classify(base, panel, _pool(given, s), setting.judged, pool_depth=pool)
        for s, panel in others
    }
    rows = [result.row(*pair) for pair, result in found.items()]
    output.table(classes.COLUMNS, rows, f"NDCG@10 by query: {setting.about}")
    source = "of each system's own run" if candidates is None else f"of {candidates}"
    output.note(f"tied: within {classes.TIE}, zeros apart; the pool is the first {pool:,} documents {source}")
    output.finish(
        setting,
        {name: {**r.counts(), **asdict(r)} for (_, name), r in found.items()},
        lambda: _plots().failures(found, setting.about),
        baseline=first.name,
    )


@app.command()
def cost(
    runs: Runs,
    *,
    task: Task = None,
    time: Annotated[int, typer.Option("--time", min=0, metavar="N", help=TIMED)] = 0,
    device: Annotated[str | None, typer.Option(help="Device for --time: cpu, cuda, or the number of a GPU.")] = None,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """Latency, calls and tokens by stage, from the manifests (Table 8)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, None, "all", "gold")
    found: dict[str, tuple[costs.Stage, ...]] = {}
    results: dict[str, list[dict[str, Any]]] = {}
    rows: list[list[object]] = []
    for system in setting.systems:
        measured = _stages(system, str(task), time, device)
        found[system.name] = tuple(stage for stage, _ in measured)
        results[system.name] = [{**asdict(stage), "machine": machine} for stage, machine in measured]
        rows += [stage.row(system.name, machine) for stage, machine in measured]
    output.table(costs.COLUMNS, rows, f"Cost: {setting.against.name}")
    output.note("the whole run includes encoding the corpus and scoring; a single query finds the corpus indexed")
    output.finish(setting, results, lambda: _plots().cost(found, setting.against.name))


@app.command()
def degeneracy(
    runs: Runs,
    *,
    task: Task = None,
    qrels: Qrels = None,
    queries: Queries = "all",
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Latex = False,
    plot: Plot = None,
) -> None:
    """Distinct first documents and the most frequent one: has the encoder collapsed? (Appendix H)."""
    output = Output(as_json, as_markdown, as_latex, plot)
    setting = _open(runs, task, qrels, queries, "gold")
    found = {s.name: firsts.degeneracy(s.run, setting.judged.queries) for s in setting.systems}
    rows = [result.row(name) for name, result in found.items()]
    output.table(firsts.COLUMNS, rows, f"First documents: {setting.about}")
    for name, result in found.items():
        if result.collapsed:
            share = f"{result.share:.0%} of the queries"
            show.warn(f"{name}: one document comes first for {share}; the encoder may have collapsed")
    output.finish(setting, _records(found), lambda: _plots().degeneracy(found, setting.about))


def _open(runs: Sequence[str], task: str | None, qrels: Path | None, queries: str, judgments: str) -> Setting:
    """Return the checked runs with their judgments; what was dropped is told as warnings.

    Raises:
        UserError: If a run cannot be judged here, or the task has no such judgments.
    """
    against = reference.choose(task, qrels, None, queries)
    if judgments not in against.judgments:
        known = ", ".join(against.judgments)
        hint = near(judgments, against.judgments)
        raise UserError(f"{against.name} has no {judgments!r} judgments, only {known}{hint}")
    return Setting(against, judgments, reference.distinct([_fitted(run, against) for run in runs]))


def _refuse_repeats(systems: Sequence[System]) -> None:
    ids = [system.run_id for system in systems]
    repeated = [run_id for run_id in dict.fromkeys(ids) if ids.count(run_id) > 1]
    raise_all([f"the run {run_id} is named twice; compare it with another one" for run_id in repeated], "not analysed")


def _fitted(run: str, against: Reference) -> System:
    system = reference.fit(reference.find_run(run, against), against)
    for warning in system.warnings:
        show.warn(warning)
    return system


def _scored(setting: Setting) -> list[tuple[System, Any]]:
    """Return each system with its panel of NDCG@10."""
    return [(s, setting.against.score(s.run, ["ndcg@10"])[setting.judgments]) for s in setting.systems]


def _pool(given: Run | None, system: System) -> Run:
    return system.run if given is None else given


def _stages(system: System, task: str, count: int, device: str | None) -> list[tuple[costs.Stage, str]]:
    """Return a system's stages, each with the machine that it was measured on."""
    if system.manifest is None:
        raise UserError(f"{system.name} is a file without a manifest, so nothing is known of its cost")
    found = [(stage, system.manifest.hardware) for stage in costs.stages(system.manifest)]
    if count:
        from obliq_eval.analyses.latency import time_alone
        from obliq_eval.manifest import hardware

        found.append((time_alone(system.manifest, task, count, device), hardware()))
    return found


def _records(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asdict(result) for name, result in results.items()}


def _plots() -> Any:
    """Return the module of pictures, which imports matplotlib when it draws."""
    from obliq_eval import plots

    return plots
