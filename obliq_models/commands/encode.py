"""`obliq encode`: fill the store of embeddings beforehand, ask what that costs, list and remove what is kept."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_models.commands import options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from obliq_models.embeddings import Embeddings
    from obliq_models.encoders.base import Encoder, Role
    from obliq_models.estimate import Estimate
    from obliq_models.retrievers.base import Retriever, Texts
    from obliq_models.shards import Storage
    from obliq_models.stores import Stored

app = typer.Typer(add_completion=False)

ROLES = {"documents": ("document",), "queries": ("query",), "both": ("document", "query")}
HELP = """Encode the texts of a task or folder beforehand, so that later runs find their vectors.

Vectors are kept in $OBLIQ_HOME/embeddings, in shards that are each written whole: after a kill the work goes on where
it was. What is there already is not encoded again, and why something was not there is told. --estimate, --list and
--remove encode nothing.
"""


@app.command(help=HELP)
def encode(
    source: Annotated[
        str | None, typer.Argument(metavar="TASK|FOLDER|FILE", help="As for `obliq index`; queries need a task.")
    ] = None,
    *,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="The same as FOLDER.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=options.MODEL)] = None,
    role: Annotated[
        str | None, typer.Option(help="documents, queries or both; by default both where there are queries.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="How vectors are kept: float32, float16 or bfloat16; by default as the model says."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it will cost: tokens, time, disk; keep nothing.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List what is kept.")] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="KEY", help="Remove what --list shows under this key; repeat."),
    ] = None,
    device: options.Device = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Encode texts beforehand."""
    from obliq_eval.commands.run import quiet

    if listing or remove:
        _refuse_others(listing=listing, remove=remove, source=source or data, model=model, estimate=estimate)
        _list(as_json=as_json) if listing else _remove(remove or (), as_json=as_json)
        return
    if source is not None and data is not None:
        raise UserError("the texts are named twice: give TASK|FOLDER|FILE or --data, not both")
    place = source or data
    if place is None or model is None:
        raise UserError("say what to encode and with which model: obliq encode TASK|FOLDER|FILE -m MODEL")
    if role is not None and role not in ROLES:
        raise UserError(f"--role is {role!r}, not one of {', '.join(ROLES)}{near(role, ROLES)}")
    quiet(0)
    _encode(place, model, role, storage, estimate, device, engine, workers, as_json=as_json)


def _encode(
    place: str, name: str, role: str | None, storage: str | None, estimating: bool, device: str | None,
    engine: str, workers: int | None, *, as_json: bool,
) -> None:  # fmt: skip
    from obliq_models.embeddings import embed
    from obliq_models.estimate import estimate
    from obliq_models.loading import check_storage, encoder_of, load, storage_of, use_engine
    from obliq_models.naming import find

    wanted = check_storage(storage)
    entry = find(name)
    jobs = list(_texts(place, role))
    model = load(entry, device)
    encoder = encoder_of(model)
    if encoder is None:
        raise UserError(f"{entry.name} does not turn texts into vectors that could be kept: there is nothing to encode")
    use_engine(model, engine, workers)
    own = storage_of(model)
    kept: Storage = wanted or own
    if kept != own:
        show.warn(f"{entry.name} reads vectors in {own}: `obliq run` does not find those in {kept}, `obliq index` does")
    if estimating:
        costs = [
            estimate(encoder, texts, one, instruction=_instruction(model, one, place), storage=kept)
            for one, texts in jobs
        ]
        _tell_costs(costs, encoder, as_json=as_json)
        return
    made = []
    with _reasons():
        for one, texts in jobs:
            made.append(
                embed(
                    encoder, texts, one, instruction=_instruction(model, one, place), storage=kept,
                    engine=getattr(model, "engine", None),
                )
            )  # fmt: skip
    if as_json:
        show.payload([_record(found) for found in made])
        return
    show.table(
        ("texts", "distinct", "encoded now", "tokens", "truncated", "tokens lost", "on disk", "key"),
        [_row(found) for found in made],
    )


def _texts(place: str, role: str | None) -> Iterator[tuple[Role, Texts | Sequence[str]]]:
    """Yield each role with its texts, as a retriever would ask for them."""
    from obliq_eval.data.official import OFFICIAL
    from obliq_eval.data.sources import MINI, load
    from obliq_models.documents import canonical, read_source
    from obliq_models.retrievers.base import Texts

    roles = ROLES[role or "both"]
    if "document" in roles:
        source = read_source(place)
        for note in source.notes:
            show.warn(note)
        yield "document", Texts(canonical(source.table))
    if "query" in roles and (role is not None or place in {*OFFICIAL, *MINI} or has_queries(place)):
        yield "query", list(load(place).queries.values())


def has_queries(place: str) -> bool:
    """Tell whether a folder holds queries beside its documents."""
    from pathlib import Path

    from obliq_eval.data.official import FILES
    from obliq_eval.data.sources import BEIR_FILES

    return any((Path(place) / name).is_file() for name in (FILES["queries"], BEIR_FILES["queries"]))


def _instruction(model: Retriever, role: Role, place: str) -> str:
    """Return what the model puts before the texts of this role when it runs on this task."""
    told = getattr(model, "instruction", None)
    if told is None or role != "query":
        return ""
    if getattr(model, "task_prompt", False) or getattr(model, "instructions", None):  # the task's metadata is mteb's
        from pathlib import Path

        from obliq_eval.running import Request, find_tasks

        folder = Path(place).is_dir()
        request = Request(model="", folders=[Path(place)]) if folder else Request(model="", tasks=[place])
        model.task = find_tasks(request)[0].metadata
    return str(told(role))


@contextmanager
def _reasons() -> Iterator[None]:
    """Show why vectors were not there."""
    log = logging.getLogger("obliq_models.embeddings")
    before, handler = log.level, _Told(logging.INFO)
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Told(logging.Handler):
    """Prints on standard error what is logged below a warning; warnings find their own way."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        if record.levelno < logging.WARNING:
            show.say(record.getMessage(), stderr=True)


def _row(found: Embeddings) -> tuple[object, ...]:
    store, counts = found.store, found.counts
    role = store.key["role"]
    return (
        f"{len(found):,} {'documents' if role == 'document' else 'queries'}", found.distinct, found.encoded,
        counts[f"{role} tokens"], counts[f"truncated {role} texts"], counts[f"lost {role} tokens"],
        options.size(store.bytes), store.name,
    )  # fmt: skip


def _record(found: Embeddings) -> dict[str, Any]:
    return {
        "key": found.store.name,
        "role": found.store.key["role"],
        "texts": len(found),
        "distinct": found.distinct,
        "encoded": found.encoded,
        "counts": dict(found.counts),
        "storage": found.store.storage,
        "bytes": found.store.bytes,
        "folder": str(found.store.folder),
    }


def _tell_costs(costs: Sequence[Estimate], encoder: Encoder, *, as_json: bool) -> None:
    if as_json:
        show.payload([asdict(cost) for cost in costs])
        return
    show.table(
        ("role", "texts", "distinct", "tokens", "truncated", "tokens lost", "time", "disk"),
        [
            (c.role, c.texts, c.distinct, c.tokens, c.truncated, c.lost, duration(c.seconds), options.size(c.bytes))
            for c in costs
        ],
    )
    for cost in costs:
        share = "all of them"
        if cost.sample < cost.distinct:
            share = f"{cost.sample:,} of them, spread over the lengths, so about"
        show.say(f"{cost.role}: from {share}, encoded here by {encoder.name}; nothing was kept")


def duration(seconds: float) -> str:
    """Return a time for people.

    >>> duration(0.4), duration(75), duration(7_260)
    ('under 1 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 1:
        return "under 1 s"
    hours, minutes, rest = whole // 3_600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _refuse_others(*, listing: bool, remove: Sequence[str] | None, **others: object) -> None:
    """Refuse what --list and --remove would pass over."""
    given = [name for name, value in others.items() if value]
    if listing and remove:
        given.append("remove")
    if given:
        raise UserError(f"{'--list' if listing else '--remove'} stands alone: leave out {', '.join(given)}")


def _list(*, as_json: bool) -> None:
    from obliq_models.stores import root, stored

    found = [_kept(one) for one in stored()]
    if as_json:
        show.payload(found)
        return
    if not found:
        show.say(f"{root()} holds no vectors")
        return
    columns = ("key", "model", "role", "texts", "distinct", "storage", "bytes", "complete", "created")
    rows = [[options.size(one[c]) if c == "bytes" else one[c] for c in columns] for one in found]
    show.table([{"bytes": "on disk"}.get(column, column) for column in columns], rows)


def _kept(store: Stored) -> dict[str, Any]:
    return {
        "key": store.name,
        "model": store.key["model"],
        "revision": store.key["revision"],
        "role": store.key["role"],
        "texts": store.texts,
        "distinct": store.distinct,
        "dims": store.dims,
        "storage": store.storage,
        "bytes": store.bytes,
        "complete": store.counts is not None and all(shard.cost() is not None for shard in store.shards()),
        "created": store.created,
        "folder": str(store.folder),
        "settings": dict(store.key),
        "counts": None if store.counts is None else dict(store.counts),
    }


def _remove(keys: Sequence[str], *, as_json: bool) -> None:
    from obliq_models import stores

    known = {store.name: store for store in stores.stored()}
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise UserError(
            f"no vectors are kept under the key {unknown[0]!r}{near(unknown[0], known)} (--list shows the "
            "keys, of which a model may have several)"
        )
    freed = {key: stores.remove(known[key]) for key in dict.fromkeys(keys)}
    if as_json:
        show.payload([{"key": key, "bytes": count} for key, count in freed.items()])
        return
    for key, count in freed.items():
        show.say(f"{key}: removed, {options.size(count)} freed")
