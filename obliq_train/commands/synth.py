"""`obliq synth`: synthetic queries for a corpus, through the lens of a latent attribute."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError
from obliq_models.commands import llm_options as llm_  # noqa: TC001 -- Typer reads the annotations
from obliq_models.commands import options  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import datasets

    from obliq_eval.data.documents import Source
    from obliq_models.llm.estimate import Estimate
    from obliq_models.llm.protocol import Request
    from obliq_train.sampling import Sampled
    from obliq_train.synthesis import Plan, Synthesis

app = typer.Typer(add_completion=False)
HELP = """Write synthetic queries for documents: a description of each document's latent attribute, then a query.

No query and no judgment of a task is read. Every answer of the language model is kept: what was stopped goes on where
it was, and what is run again costs nothing and gives the same file. Exit status 1 if more than --failures of the
queries were not written.
"""
SOURCE = "Task, folder (official or BEIR layout, or text files), or .jsonl file of documents."
LENS = "twitter, math, writing, congress, wildchat, generic, or a TOML file of your own."
GATE = "Rejected and reported"


@app.command(help=HELP)
def synth(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE)],
    *,
    lens: Annotated[str, typer.Option("--lens", help=LENS)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The rows.")] = Path("synthetic.jsonl"),
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many documents; by default all.")] = None,
    per_document: Annotated[int, typer.Option("--per-document", min=1, help="Queries for each document.")] = 1,
    tries: Annotated[int, typer.Option(min=1, help="Samples of a query while the gate rejects them.")] = 3,
    cap: Annotated[
        list[str] | None, typer.Option("--cap", metavar="MEASURE=MOST", help="Change a cap: coverage=0.2, or =off.")
    ] = None,
    gate: Annotated[bool, typer.Option("--gate/--no-gate", help="Reject queries above the caps.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of documents and of the model's samples.")] = 0,
    document_tokens: Annotated[int, typer.Option(min=1, help="Where documents are cut for the prompts.")] = 2048,
    tokenizer: Annotated[str, typer.Option(help="What counts tokens; without it, four characters are a token.")] = "",
    estimate: Annotated[bool, typer.Option("--estimate", help="Say what it will cost, and make no call.")] = False,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Calls per second, for the estimate's time.")] = None,
    answer_tokens: Annotated[
        int | None, typer.Option(min=1, help="Expected tokens of an answer, for the estimate.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Who asks: local, or ray for workers on several machines (obliq[ray,vllm]).")
    ] = "local",
    workers: Annotated[int, typer.Option(min=0, help="Workers of --engine ray; 0 for one a GPU, or two.")] = 0,
    failures: Annotated[float, typer.Option(min=0, max=1, help="Share of missing queries that may pass.")] = 0.05,
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
    """Write synthetic queries for documents."""
    from obliq_eval.data.documents import read_source
    from obliq_eval.data.official import OFFICIAL
    from obliq_eval.data.sources import MINI
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.rerankers.cutting import Cut
    from obliq_train.gate import Caps, parse_caps
    from obliq_train.lenses import load
    from obliq_train.provenance import check_output
    from obliq_train.synthesis import Plan

    if engine not in {"local", "ray"}:
        raise UserError(f"--engine {engine!r} is neither local nor ray")
    model = LLMSettings.read(
        model=llm, backend=llm_backend, temperature=temperature, max_tokens=max_tokens, template=template,
        concurrency=concurrency, limit_calls=limit_calls, limit_tokens=limit_tokens, limit_money=limit_money,
        prices=prices, replay=replay or None,
    )  # fmt: skip
    if model.seed is None:  # without one, a server may give a rejected sample again
        model = replace(model, seed=seed)
    if model.temperature == 0 and (per_document > 1 or tries > 1):
        show.warn("temperature 0: another sample of a query may be the same again; --temperature 0.7 makes them differ")
    found = load(lens)
    changed = parse_caps(cap or [])
    caps = Caps().but({**found.caps, **changed}) if gate else Caps.open().but(changed)
    documents = read_source(source)
    for note in documents.notes:
        show.warn(note)
    task = source if source in (*OFFICIAL, *MINI) else found.task if lens.endswith(".toml") else ""
    plan = Plan(found, model, caps, per_document, tries, task, Cut(document_tokens, tokenizer))
    if estimate:
        _estimate(documents.table, plan, seed, limit, rate, answer_tokens, as_json=as_json)
        return
    model.check()
    check_output(output, source, lens)
    settings = {"source": source, "limit": limit, "engine": engine, **plan.settings()}
    ray = workers if engine == "ray" else None
    lost = _write(documents, plan, seed, settings, output, ray, as_json=as_json)
    if lost > failures:
        show.warn(f"{lost:.1%} of the queries were not written, more than --failures {failures:g}")
        raise typer.Exit(1)


def _write(
    source: Source, plan: Plan, seed: int, settings: dict[str, Any], output: Path, ray: int | None, *, as_json: bool
) -> float:
    """Write the rows and their manifest, report them, and return the share of queries that are missing.

    Args:
        source: The documents.
        plan: How queries are written.
        seed: Of the choice of documents.
        settings: For the manifest.
        output: The file.
        ray: Workers of Ray, 0 for as many as fit; None to ask from here.
        as_json: Print the manifest.
    """
    from obliq_train import provenance
    from obliq_train.sampling import content, sample
    from obliq_train.synthesis import Synthesis, line_of

    left: Counter[str] = Counter()
    limit = settings["limit"]
    total = min(len(source.table), limit or len(source.table))
    documents = show.track(sample(source.table, seed, limit, left), "writing queries", total)
    with nullcontext() if ray is not None else plan.llm.open() as client:
        made = Synthesis(plan, client)
        manifest = provenance.write(
            output,
            map(line_of, made.rows(documents) if ray is None else _on_ray(made, documents, ray, left)),
            command="obliq synth",
            settings=settings,
            inputs={source.name: content(source.table)},
            seed=seed,
            counts=lambda: made.all_counts() | dict(left),
        )
    _report(output, manifest, made, as_json=as_json)
    return made.failures


def _on_ray(
    made: Synthesis, documents: Iterable[Sampled], workers: int, counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    from obliq_train.bulk import draft_on_ray

    for drafted in draft_on_ray(made.plan, documents, workers, counts):
        yield from made.finish(drafted)


def _report(output: Path, manifest: dict[str, Any], made: Synthesis, *, as_json: bool) -> None:
    if as_json:
        show.payload(manifest)
        return
    counts = manifest["counts"]
    show.table(("what", "number"), list(counts.items()), title=f"{output}: {manifest['lines']:,} queries")
    rejected = sum(n for name, n in counts.items() if name.startswith("rejected: "))
    if rejected:
        show.say(f"{rejected:,} reasons for rejection; a sample may have several.")
    show.say(f"lens {made.plan.lens.prompt}, model {made.plan.llm.model}; manifest: {output}.manifest.json")


def _estimate(
    table: datasets.Dataset, plan: Plan, seed: int, limit: int | None, rate: float | None, answer_tokens: int | None,
    *, as_json: bool,
) -> None:  # fmt: skip
    from obliq_models.llm.estimate import estimate
    from obliq_models.llm.protocol import key_of
    from obliq_train.sampling import sample

    left: Counter[str] = Counter()
    documents = _Counted(sample(table, seed, limit, left))
    with ExitStack() as stack:
        client = None
        with suppress(UserError):  # without a server it cannot be known what is stored
            client = stack.enter_context(plan.llm.open())

        def kept(request: Request) -> str | None:
            if client is None or client.cache is None:
                return None
            found = client.cache.get(key_of(request, client.backend))
            return None if found is None else found.text

        expected = estimate(
            plan.requests(documents, kept),
            stored=(lambda _: False) if client is None else client.stored,
            completion_tokens=answer_tokens,
            calls_per_second=rate,
            prices=plan.llm.price_table(),
        )
    _tell(expected, documents.number, left, plan, known=client is not None, most=answer_tokens is None, as_json=as_json)


def _tell(
    found: Estimate, documents: int, left: Counter[str], plan: Plan, *, known: bool, most: bool, as_json: bool
) -> None:
    money = None if found.money is None else f"{found.money:.2f} {found.prices}"
    if as_json:
        show.payload({"documents": documents, **asdict(found), "money": money, "left_out": dict(left)})
        return
    columns = ("documents", "calls", "stored", "tokens read", f"tokens written{' at most' if most else ''}", "seconds",
               "money")  # fmt: skip
    row = (documents, found.calls, found.stored, found.prompt_tokens, found.completion_tokens, found.seconds, money)
    show.table(
        columns, [row], title=f"What it will cost: lens {plan.lens.prompt}, model {plan.llm.model or 'not named'}"
    )
    for name, number in left.items():
        show.say(f"left out, {name}: {number:,}")
    show.say(
        f"Tokens read are {found.method}; nothing was asked. Queries that the gate rejects are asked for again, up"
    )
    show.say(f"to {plan.tries} samples each; descriptions that are not stored yet are taken to be of the usual length.")
    if not known:
        show.say("No server is set, so answers that may be stored already are counted as calls.")


class _Counted:
    """Counts what passes through."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.number = 0
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.number += 1
            yield item
