"""`obliq mix`: training rows of several parts, as one file for the trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from obliq_train.mixing import Mix

app = typer.Typer(add_completion=False)
HELP = """Mix training rows: doses or weights, no duplicates across parts, no positive among its negatives, shuffled.

A recipe is a TOML file with a [[part]] for each file, or `paper`. Files alone give all of their rows. `hub:` stands for
the authors' own rows (CC-BY-NC-4.0), `hub:OWNER/NAME@REVISION` for another repository or commit. The manifest beside
the output names the hash of each input.
"""
WHAT = "RECIPE.toml or `paper`; or files of rows (.jsonl); or hub:[OWNER/NAME][@REVISION]."
HUB = "hub:"


@app.command(help=HELP)
def mix(
    what: Annotated[list[str], typer.Argument(metavar="RECIPE|FILE...", help=WHAT)],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The rows.")] = Path("rows.jsonl"),
    files: Annotated[
        list[str] | None, typer.Option("--file", metavar="PART=FILE", help="The file of one of the recipe's parts.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of what is drawn and of the order; by default the recipe's.")
    ] = None,
    conflicts: Annotated[
        str | None, typer.Option(help="Rows whose positive is among their negatives: refuse, or repair.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Name or folder of the student's tokenizer: counts tokens and what is cut.")
    ] = None,
    query_tokens: Annotated[int, typer.Option(min=1, help="Where the trainer cuts queries.")] = 1024,
    document_tokens: Annotated[int, typer.Option(min=1, help="Where the trainer cuts documents.")] = 1024,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest.")] = False,
) -> None:
    """Mix training rows of several parts into one file."""
    from obliq_train import provenance
    from obliq_train.mixture import Mixture, tokens_of

    recipe, more = _read(what, files or [])
    if conflicts is not None:
        if conflicts not in {"refuse", "repair"}:
            raise UserError(f"--conflicts {conflicts!r} is neither refuse nor repair")
        recipe = replace(recipe, conflicts="repair" if conflicts == "repair" else "refuse")
    if seed is not None:
        recipe = replace(recipe, seed=seed)
    used = {part.name: part.file for part in recipe.parts if part.file and part.name not in recipe.replaced}
    provenance.check_output(output, *used.values(), *what)
    for part in recipe.parts:
        if not part.published:
            show.warn(f"the share of {part.name} is not published: all of its rows are taken")
    inputs = {name: provenance.sha256(file) for name, file in used.items()}
    mixture = Mixture(recipe, tokens_of(tokenizer) if tokenizer else None, (query_tokens, document_tokens))
    manifest = provenance.write(
        output,
        show.track(mixture.lines(), "mixing"),
        command="obliq mix",
        settings={
            **recipe.settings(),
            **more,
            "files": {name: str(file) for name, file in used.items()},
            "tokenizer": tokenizer,
        },
        inputs=inputs,
        seed=recipe.seed,
        counts=mixture.all_counts,
    )
    _report(output, manifest, recipe, as_json=as_json)


def _read(what: list[str], files: list[str]) -> tuple[Mix, dict[str, Any]]:
    """Return the mixture, and what the manifest says beside it."""
    from obliq_train import mixing

    pairs = [text.partition("=") for text in files]
    if wrong := [text for text, (name, _, file) in zip(files, pairs, strict=True) if not name or not file]:
        raise UserError(f"--file {wrong[0]!r} is not of the form PART=FILE")
    if what[0].endswith(".toml") or what[0] in mixing.names():
        if len(what) > 1:
            raise UserError("give one recipe, or files of rows: files beside a recipe go into it with --file PART=FILE")
        return mixing.read(what[0]).with_files({name: Path(file) for name, _, file in pairs}), {}
    if files:
        raise UserError("--file belongs to a recipe")
    paths: list[Path] = []
    more: dict[str, Any] = {}
    for one in what:
        if not one.startswith(HUB) and not Path(one).exists() and (hint := near(one, mixing.names())):
            raise UserError(f"{one} is neither a file nor a recipe's name{hint}")
        if one.startswith(HUB):
            paths += _from_hub(one.removeprefix(HUB), more)
        else:
            paths.append(Path(one))
    return mixing.of_files(paths), more


def _from_hub(text: str, more: dict[str, Any]) -> list[Path]:
    from obliq_train.authors import LICENCE, REPOSITORY, fetch

    name, _, revision = text.partition("@")
    repository = name or REPOSITORY
    found = fetch(repository, revision or None)
    terms = LICENCE if repository == REPOSITORY else "terms as its card says"
    show.say(f"{repository} at {found.revision or 'a folder'}: {terms}; {len(found.files)} files of rows", stderr=True)
    more.setdefault("hub", {})[repository] = {
        "revision": found.revision,
        "licence": terms,
        "files": sorted(found.files),
    }
    return [found.files[name] for name in sorted(found.files)]


def _report(output: Path, manifest: dict[str, Any], recipe: Mix, *, as_json: bool) -> None:
    if as_json:
        show.payload(manifest)
        return
    show.table(("what", "number"), list(manifest["counts"].items()), title=f"{output}: {manifest['lines']:,} rows")
    if recipe.total is not None and manifest["lines"] != recipe.total:
        show.warn(f"{manifest['lines']:,} rows, and the recipe says {recipe.total:,}")
    show.say(f"manifest: {output}.manifest.json")
