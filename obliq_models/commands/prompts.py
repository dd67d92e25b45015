"""`obliq prompts`: what language models are told, with the form of the answer."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from obliq_eval import show
from obliq_models import prompts as library
from obliq_models.commands import options  # noqa: TC001 -- Typer reads the annotations

app = typer.Typer(add_completion=False)
COLUMNS = ("name", "version", "answer", "names the attribute", "purpose")


@app.callback(invoke_without_command=True)
def prompts(context: typer.Context, *, as_json: options.Json = False) -> None:
    """List the prompts; `obliq prompts show NAME` prints one with the schema of its answer."""
    if context.invoked_subcommand is not None:
        return
    found = [library.load(name) for name in library.names()]
    rows = [(one.name, one.revision, one.answer, one.attribute or None, one.purpose) for one in found]
    show.table(COLUMNS, rows, as_json=as_json)


@app.command("show")
def show_one(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `obliq prompts`, or a TOML file.")],
    *,
    as_json: options.Json = False,
) -> None:
    """Print the messages and the answer's schema; names in braces are filled in."""
    from pathlib import Path

    from obliq_models.llm.answers import ranking_schema, selection_schema

    prompt = library.read(Path(name)) if name.endswith(".toml") else library.load(name)
    forms = {"ranking": ranking_schema, "selection": selection_schema}
    schema = prompt.schema or (forms[prompt.answer](3) if prompt.answer in forms else None)
    if as_json:
        show.payload({**asdict(prompt), "revision": prompt.revision, "schema": schema})
        return
    show.say(f"{prompt.name}, version {prompt.revision}: {prompt.purpose}")
    for role, text in (("system", prompt.system), ("user", prompt.user)):
        show.say(f"\n[{role}]")
        show.say(text.strip())
    if schema is not None:
        of_three = "" if prompt.schema else ", for an answer of 3 documents"
        show.say(f"\n[schema{of_three}]")
        show.say(json.dumps(schema, indent=2))
