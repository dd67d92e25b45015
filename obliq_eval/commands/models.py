"""`obliq models`: the models that are known by name, from the table alone; no model is imported."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.catalogue import ModelEntry, catalogue, resolve
from obliq_eval.commands.extras import extras

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(add_completion=False, help="List the models: names, licences, what they need, risks.")

FIELDS = {
    "alias": "alias",
    "name": "full name",
    "kind": "kind",
    "summary": "what it is",
    "paper_row": "row of the paper",
    "presumed": "presumed",
    "revision": "revision",
    "base": "built on",
    "licence": "licence of the weights or code",
    "base_licence": "terms of what it is built on",
    "data_licence": "licence of its training data",
    "risk": "risk",
    "dims": "dimensions",
    "query_length": "query length in tokens",
    "document_length": "document length in tokens",
    "query_prefix": "query prefix",
    "document_prefix": "document prefix",
    "settings": "settings",
    "n_parameters": "parameters",
    "served": "run by a server",
    "memory": "memory",
    "extra": "needs",
    "languages": "languages",
    "loader": "loader",
}
"""What `show` shows, in this order, and how it is called there."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def record(entry: ModelEntry) -> dict[str, Any]:
    """Return everything about a model that is not an object of mteb, and whether its extra is installed."""
    known = {field.name: getattr(entry, field.name) for field in fields(entry) if field.name != "meta"}
    known["settings"], known["languages"] = dict(entry.settings), list(entry.languages)
    return {**known, "installed": ready(entry)}


def ready(entry: ModelEntry) -> bool | None:
    """Tell whether what the model needs is installed; None if its extra is not one of this package's."""
    if entry.extra is None:
        return True
    missing = extras().get(entry.extra)
    return None if missing is None else not missing


@app.callback(invoke_without_command=True)
def list_models(context: typer.Context, *, as_json: Json = False) -> None:
    """List the models, with the licence of each and the extra that it needs."""
    if context.invoked_subcommand:
        return
    models = catalogue()
    if as_json:
        show.payload([record(entry) for entry in models.values()])
        return
    rows = [
        (alias, e.kind, re.split("[:;(]", e.licence)[0].strip() or None, _needs(e), "yes" if e.risk else "", e.summary)
        for alias, e in models.items()
    ]
    show.table(("alias", "kind", "licence", "needs", "risk", "what it is"), rows)
    if any(entry.risk for entry in models.values()):
        show.say("`obliq models show NAME` says what the risk is, the terms in full, and everything else.")


@app.command("show")
def show_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Alias or full name.")], *, as_json: Json = False
) -> None:
    """Show everything about one model: licence, risk, prefixes, lengths, revision."""
    entry = resolve(name)
    if as_json:
        show.payload(record(entry))
        return
    values = {**record(entry), "extra": _needs(entry) or None}
    if entry.revision == "main":
        values["revision"] = "main; the commit that it is when the model is loaded is recorded with every run"
    rows = [(FIELDS[key], _text(values[key])) for key in FIELDS]
    show.table(("field", "value"), rows)


def _needs(entry: ModelEntry) -> str:
    """Return what to install for a model, in words; nothing if it needs no extra."""
    words: Mapping[bool | None, str] = {
        True: f"[{entry.extra}], installed",
        False: f"pip install 'obliq[{entry.extra}]'",
        None: f"[{entry.extra}] of its package",
    }
    return "" if entry.extra is None else words[ready(entry)]


def _text(value: object) -> object:
    """Return a value as it is best read in a table; a prefix keeps its spaces visible."""
    if isinstance(value, dict):
        return ", ".join(f"{key} = {item!r}" for key, item in value.items()) or None
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, str):
        return repr(value) if value != value.strip() else value or None
    return value
