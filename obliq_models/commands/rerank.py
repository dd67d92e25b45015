"""`obliq rerank`: a stored run in another order, what that costs beforehand, and sweeps of cost against quality."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path  # noqa: TC003 -- Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.commands import llm_options as llm_  # noqa: TC001 -- Typer reads the annotations
from obliq_models.commands import options  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.runs import StoredRun
    from obliq_models.llm.client import Client
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.policies import Policy
    from obliq_models.rerankers.stage import Staged
    from obliq_models.rerankers.steps import Step
    from obliq_models.rerankers.sweep import Point, Sweep
    from obliq_models.reranking import Source

app = typer.Typer(add_completion=False)

RUN = "Run id or the start of it, MODEL:TASK, or a run file (then give -t)."
RERANKER = "listwise, tourrank, identity, parameters as in tourrank-y1 or listwise-k50-generic, or a cross-encoder."
COLUMNS = ("system", "judgments", "queries", "NDCG@10", "NDCG@50", "R@100", "calls/query", "failed")
HELP = """Rerank a stored run and store the result.

The first documents of each query are put into another order; those below keep theirs, so Recall@100 does not change
for a pool of at most 100. Every answer of the language model is kept: what is run again costs nothing. A run in which
more than --failures of the questions brought no usable answer is refused.
"""


@app.command(help=HELP)
def rerank(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN)],
    *,
    reranker: Annotated[str | None, typer.Option("--reranker", "-r", help=RERANKER)] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Policy file (.toml) or the bundled `paper`, in place of a reranker.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("-t", "--task", "--data", help="Task or folder; by default the run's.")
    ] = None,
    pool: Annotated[
        int | None, typer.Option(min=1, help="How many first documents take part: 100; 200 is a cascade.")
    ] = None,
    y: Annotated[int | None, typer.Option("--y", min=1, help="Tournaments of TourRank.")] = None,
    k: Annotated[int | None, typer.Option("--k", min=2, help="Documents of a listwise call.")] = None,
    stride: Annotated[
        int | None, typer.Option(min=0, help="Let a listwise window move over the pool by so many.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="A prompt (`obliq prompts`) or a TOML file of your own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the order in which TourRank shows documents.")] = None,
    document_tokens: Annotated[int | None, typer.Option(min=1, help="Where documents are cut: 1024.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="What counts tokens; without it, four characters are a token.")
    ] = None,
    sweep: Annotated[
        list[str] | None, typer.Option("--sweep", help="y=1,2,5 (tournaments) or k=10,20,50; may be repeated.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a sweep: FILE.svg or .png.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it will cost, and make no call.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Calls per second, for the estimate's time.")] = None,
    answer_tokens: Annotated[
        int | None, typer.Option(min=1, help="Expected tokens of an answer, for the estimate.")
    ] = None,
    failures: Annotated[float, typer.Option(min=0, max=1, help="Share of failed questions that may pass.")] = 0.05,
    device: options.Device = None,
    llm: llm_.Llm = None,
    llm_backend: llm_.Backend = None,
    temperature: llm_.Temperature = None,
    max_tokens: llm_.MaxTokens = None,
    template: llm_.Template = None,
    concurrency: llm_.Concurrency = None,
    limit_calls: llm_.LimitCalls = None,
    limit_tokens: llm_.LimitTokens = None,
    limit_money: llm_.LimitMoney = None,
    prices: llm_.PriceFile = None,
    replay: llm_.Replay = False,
    as_json: options.Json = False,
) -> None:
    """Rerank a stored run and store the result."""
    from obliq_eval.commands.run import quiet
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.rerankers import sweep as sweeps
    from obliq_models.reranking import open_run

    quiet(0)
    sought = [sweeps.parse(text) for text in sweep or ()]
    _check_form(reranker, policy, sought, plot)
    model = LLMSettings.read(
        model=llm, backend=llm_backend, temperature=temperature, max_tokens=max_tokens, template=template,
        concurrency=concurrency, limit_calls=limit_calls, limit_tokens=limit_tokens, limit_money=limit_money,
        prices=prices, replay=replay or None,
    )  # fmt: skip
    source = open_run(run, task)
    for warning in source.system.warnings:
        show.warn(warning)
    changes = {
        "pool": pool, "y": y, "k": k, "stride": stride, "prompt": prompt, "seed": seed,
        "document_tokens": document_tokens, "tokenizer": tokenizer,
    }  # fmt: skip
    given = {key: value for key, value in changes.items() if value is not None}
    step, chosen = _step(source, reranker, policy, sought, given)
    if estimate:
        # fewer tournaments are part of more
        every = [each for one in sought for each in one.steps(step)[-1 if one.key == "y" else 0 :]]
        _estimate(source, every or [step], model, as_json=as_json, rate=rate, answer_tokens=answer_tokens)
        return
    with ExitStack() as stack:
        needed = step.needs_llm or bool(sought)
        client = stack.enter_context(model.open()) if needed else None
        if sought:
            _sweep(source, sought, step, model, client, failures, plot, as_json=as_json)
        else:
            _one(source, step, chosen, model, client, failures, device, as_json=as_json)


def _check_form(reranker: str | None, policy: str | None, sought: Sequence[Sweep], plot: Path | None) -> None:
    if reranker is not None and policy is not None:
        raise UserError("give --reranker or --policy, not both")
    if reranker is None and policy is None and not sought:
        raise UserError("say how to rerank: --reranker listwise, --policy paper, or --sweep y=1,2,5")
    if sought and policy is not None:
        raise UserError("--sweep varies one reranker: leave --policy out")
    if plot is not None:
        from obliq_eval.drawing import check_target

        if not sought:
            raise UserError("--plot draws a sweep: give --sweep y=1,2,5 or k=10,20,50")
        check_target(plot)


def _step(
    source: Source, reranker: str | None, policy: str | None, sought: Sequence[Sweep], changes: dict[str, Any]
) -> tuple[Step, Policy | None]:
    """Return what reranks, with the options' changes, and the policy that says so."""
    from obliq_models import policies
    from obliq_models.rerankers.steps import Step, parse
    from obliq_models.rerankers.sweep import KINDS

    if policy is not None:
        if changes:
            raise UserError(f"--policy says everything: leave --{min(changes).replace('_', '-')} out")
        found = policies.load(policy)
        return found.step(source.task), found
    if reranker is None:
        kinds = {KINDS[one.key] for one in sought}
        if len(kinds) > 1 and (idle := changes.keys() - {"document_tokens", "tokenizer"}):
            option = min(idle).replace("_", "-")
            raise UserError(f"--{option} is for one of the rerankers of these sweeps: say which, with --reranker")
        return Step.of({"reranker": min(kinds), **changes}), None
    return Step.of(parse(reranker).table() | changes), None


def _estimate(
    source: Source, steps: Sequence[Step], model: LLMSettings, *, as_json: bool, rate: float | None,
    answer_tokens: int | None,
) -> None:  # fmt: skip
    from obliq_models.reranking import costs

    with ExitStack() as stack:
        stored = None
        if model.model and model.backend == "openai":  # others would be loaded, only to learn what is stored
            with suppress(MissingExtraError):
                stored = stack.enter_context(replace(model, replay=True).open()).stored
        found = {
            step.name: costs(source, step.build(model), model, stored, calls_per_second=rate,
                             completion_tokens=answer_tokens)
            for step in steps
        }  # fmt: skip
    most = "" if answer_tokens else " at most"
    columns = ("reranker", "calls", "stored", "tokens read", f"tokens written{most}", "seconds", "money")
    rows = [
        (name, e.calls, e.stored, e.prompt_tokens, e.completion_tokens, e.seconds,
         None if e.money is None else f"{e.money:.2f} {e.prices}")
        for name, e in found.items()
    ]  # fmt: skip
    if as_json:
        show.payload(
            {name: {**asdict(e), "money": None if e.money is None else str(e.money)} for name, e in found.items()}
        )
        return
    queries = len(source.system.run.rankings)
    show.table(columns, rows, title=f"What it will cost: {source.task}, {queries:,} queries")
    method = next(iter(found.values())).method
    show.say(f"Tokens read are {method}; nothing was asked. Answers that cannot be read are asked for again.")
    if stored is None:
        show.say("Which answers are stored is known for a model behind a server ($OBLIQ_LLM) alone: all are counted.")


def _one(
    source: Source,
    step: Step,
    policy: Policy | None,
    model: LLMSettings,
    client: Client | None,
    failures: float,
    device: str | None,
    *,
    as_json: bool,
) -> None:
    from obliq_models.reranking import build, keep, run

    built = build(source, step, model, client, device)
    staged = run(source, built, failures)
    kept = keep(source, staged.run, step, built, model, policy=policy, counts=staged.counts, seconds=staged.seconds)
    _report(source, kept, staged, as_json=as_json)


def _report(source: Source, kept: StoredRun, staged: Staged, *, as_json: bool) -> None:
    assert kept.manifest is not None  # noqa: S101 -- it was stored just now
    queries = max(len(source.system.run.rankings), 1)
    share = staged.failed / staged.questions if staged.questions else None
    before = source.against.score(source.system.run)
    if as_json:
        show.payload(
            {
                "run": kept.name,
                "model": kept.manifest.model.name,
                "task": source.task,
                "before": {name: panel.known() for name, panel in before.items()},
                "after": kept.manifest.scores,
                "calls_per_query": staged.questions / queries,
                "failed_share": share,
                "counts": kept.manifest.counts,
            }
        )
        return
    rows: list[tuple[object, ...]] = []
    for name, panel in before.items():
        n = len(panel.queries)
        after = kept.manifest.scores[name]
        rows.append((source.alias, name, n, *_measures(panel.known()), None, None))
        failed = None if share is None else f"{share:.1%}"
        rows.append((kept.manifest.model.alias, name, n, *_measures(after), staged.questions / queries, failed))
    show.table(COLUMNS, rows, title=source.task)
    for what, number in staged.counts.items():
        if number and any(word in what for word in ("cut", "repaired", "without", "unfinished", "failed", "one score")):
            show.warn(f"{what}: {number:,}")
    show.say(f"run {kept.name}")


def _measures(scores: dict[str, float]) -> tuple[float | None, ...]:
    return tuple(scores.get(measure) for measure in ("ndcg@10", "ndcg@50", "recall@100"))


def _sweep(
    source: Source,
    sought: Sequence[Sweep],
    step: Step,
    model: LLMSettings,
    client: Client | None,
    failures: float,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    from obliq_models import reranking
    from obliq_models.rerankers.sweep import KINDS

    base = reranking.baseline(source)
    lines: dict[str, list[Point]] = {}
    for one in sought:
        lines[KINDS[one.key]] = reranking.swept(source, one, step, model, client, failures)
    points = [base, *(point for line in lines.values() for point in line)]
    judged = list(base.quality)
    if as_json:
        show.payload([{**asdict(p), "step": p.step and p.step.table(), "name": p.step and p.step.name} for p in points])
    else:
        rows = [
            (p.step.name if p.step else source.alias, p.calls, *(p.quality[name] for name in judged), p.run_id)
            for p in points
        ]
        columns = ("system", "calls/query", *(f"NDCG@10 {name}" for name in judged), "run")
        show.table(columns, rows, title=f"Cost and quality: {source.task}")
    if plot is not None:
        reranking.picture(plot, base, lines, source)
        show.say(f"picture: {plot}", stderr=as_json)
