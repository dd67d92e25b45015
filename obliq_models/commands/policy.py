"""`obliq policy`: which reranker each task gets, and its choice on dev queries."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError
from obliq_models import policies
from obliq_models.commands import llm_options as llm_  # noqa: TC001 -- Typer reads the annotations
from obliq_models.commands import options  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_eval.records import Run
    from obliq_models.policies import Policy
    from obliq_models.policies.select import Choice
    from obliq_models.rerankers.steps import Step
    from obliq_models.reranking import Source

app = typer.Typer(
    help="Which reranker each task gets: show a policy, or choose one on dev queries.",
    no_args_is_help=True,
    add_completion=False,
)
CANDIDATES = "identity,listwise,tourrank-y1,tourrank-y5"
SELECT = """Choose a reranker for each task by NDCG@10 on its dev queries, and write the policy file.

RUN is a run of a first stage, one for each task; reranked runs of it may be given beside it, and are candidates too.
What --candidates names and no such run has is reranked here, for dev queries only. Judgments of test queries have no
part in the choice: they are reported beside it.
"""


@app.command("show")
def show_one(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="`paper`, or a TOML file.")] = "paper",
    *,
    as_json: options.Json = False,
) -> None:
    """Print a policy: tasks, rerankers, the hash of its content, dev figures."""
    found = policies.load(name)
    if as_json:
        record = {"name": found.name, "content": found.content, "about": found.about}
        show.payload({**record, "tasks": found.table(), "dev": dict(found.dev)})
        return
    rows = [(task, step.name, step.pool if step.needs_llm else None) for task, step in found.steps.items()]
    show.table(("task", "reranker", "pool"), rows, title=f"{found.name}, content {found.content[:8]}")
    if found.about:
        show.say(found.about)
    for task, figures in found.dev.items():
        tried = ", ".join(f"{name} {value:.3f}" for name, value in figures.get("candidates", {}).items())
        show.say(f"{task}, NDCG@10 of {figures.get('queries')} dev queries: {tried}")


@app.command("select", help=SELECT)
def select(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run ids, or MODEL:TASK.")],
    *,
    candidates: Annotated[
        str | None, typer.Option(help=f"Comma-separated; by default {CANDIDATES}, or the stored runs that are given.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The policy file.")] = Path(
        "policy.toml"
    ),
    tasks: Annotated[
        list[str] | None, typer.Option("-t", "--task", "--data", help="Task or folder of each RUN, in their order.")
    ] = None,
    dev_only: Annotated[
        bool, typer.Option("--dev-only", help="Do not rerank the test queries with what was chosen.")
    ] = False,
    failures: Annotated[float, typer.Option(min=0, max=1, help="Share of failed questions that may pass.")] = 0.05,
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
    """Choose a reranker for each task on dev queries, and write the policy file."""
    from obliq_eval.commands.run import quiet
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.policies.select import choose, policy

    quiet(0)
    if output.suffix != ".toml":
        raise UserError(f"a policy file ends in .toml, and {output} does not")
    model = LLMSettings.read(
        model=llm, backend=llm_backend, temperature=temperature, max_tokens=max_tokens, template=template,
        concurrency=concurrency, limit_calls=limit_calls, limit_tokens=limit_tokens, limit_money=limit_money,
        prices=prices, replay=replay or None,
    )  # fmt: skip
    wanted = _wanted(candidates or CANDIDATES)
    plans: list[tuple[Source, list[Step], dict[Step, Run]]] = []
    for source, stored in _by_task(runs, tasks):
        more = wanted if candidates or len(stored) == 1 else ()
        plans.append((source, list(dict.fromkeys((*stored, *more))), stored))
    with ExitStack() as stack:
        needed = any(step.needs_llm and step not in stored for _, steps, stored in plans for step in steps)
        client = stack.enter_context(model.open()) if needed else None
        choices = [
            choose(source, steps, stored, model, client, threshold=failures, report_test=not dev_only)
            for source, steps, stored in plans
        ]
    asked = f", asking {model.model}" if client is not None else ""
    firsts = ", ".join(dict.fromkeys(source.alias for source, _, _ in plans))
    found = policy(output.stem, choices, f"Chosen by NDCG@10 on dev queries over the runs of {firsts}{asked}.")
    found.write(output)
    _report(found, choices, output, as_json=as_json)


def _wanted(text: str) -> tuple[Step, ...]:
    from obliq_models.rerankers.steps import parse

    return tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",") if part.strip()))


def _by_task(refs: Sequence[str], tasks: Sequence[str] | None) -> list[tuple[Source, dict[Step, Run]]]:
    """Return, for each task, the first stage's run and the candidates' stored ones (the first stage's as identity).

    Raises:
        UserError: If a task has no run of a first stage, two of them, or candidates over different ones.
    """
    from obliq_models.rerankers.steps import Step
    from obliq_models.reranking import open_run

    if tasks and len(tasks) != len(refs):
        raise UserError(f"{len(tasks)} tasks are given for {len(refs)} runs: give -t once for each RUN, in their order")
    firsts: dict[str, Source] = {}
    others: dict[str, dict[Step, Run]] = {}
    over: dict[str, set[str]] = {}
    for ref, task in zip(refs, tasks or repeat(None), strict=False):
        source = open_run(ref, task)
        step, first = _made_by(source)
        if step is None:
            if source.task in firsts:
                raise UserError(f"{ref} is a second first stage for {source.task}: give one run for each task")
            firsts[source.task] = source
        else:
            others.setdefault(source.task, {})[step] = source.system.run
            over.setdefault(source.task, set()).add(first)
    if missing := [task for task in others if task not in firsts]:
        raise UserError(f"{', '.join(missing)}: give the run of the first stage too, which is what identity stands for")
    for task, names in over.items():
        if names != {firsts[task].first[0]}:
            found = ", ".join(sorted(names))
            raise UserError(
                f"the candidates of {task} rerank {found}, and the first stage is {firsts[task].first[0]}: "
                "only rerankers over the same first stage can be compared"
            )
    return [(source, {Step(): source.system.run, **others.get(task, {})}) for task, source in firsts.items()]


def _made_by(source: Source) -> tuple[Step | None, str]:
    """Return the reranker that made a stored run, and its first stage's name; None and empty for a first stage."""
    from obliq_models.rerankers.steps import Step

    manifest = source.system.manifest
    settings: dict[str, Any] = {} if manifest is None else manifest.model.settings
    table, first = settings.get("step") or settings.get("then"), settings.get("first")
    if not isinstance(table, dict) or not isinstance(first, dict) or "policy" in table:
        return None, ""
    return Step.of(table), str(first.get("model") or first.get("name"))


def _report(found: Policy, choices: Sequence[Choice], output: Path, *, as_json: bool) -> None:
    if as_json:
        record = {"file": str(output), "content": found.content, "tasks": found.table()}
        tried = {
            choice.task: {
                one.step.name: {
                    "dev": one.dev,
                    "test": one.test,
                    "calls_per_query": one.calls,
                    "chosen": one.step == choice.chosen,
                }
                for one in choice.tried
            }
            for choice in choices
        }
        show.payload({**record, "candidates": tried})
        return
    rows = [
        (choice.task, one.step.name, one.calls, one.dev, one.test, "chosen" if one.step == choice.chosen else "")
        for choice in choices
        for one in choice.tried
    ]
    columns = ("task", "reranker", "calls/query", "NDCG@10 dev", "NDCG@10 test", "")
    show.table(columns, rows, title="Rerankers by dev queries; test queries decide nothing")
    show.say(f"{output}: policy {found.content[:8]}")
