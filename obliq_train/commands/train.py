"""`obliq train`: an adapter from a recipe; what it will do; the recipes; the ablations."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_train.launching import told_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_train.recipe import Recipe

app = typer.Typer(add_completion=False)
HELP = """Train a LoRA adapter by a recipe: `obliq train --list` names those that are bundled.

Rows are built or read, then trained on; OUTPUT is written once, at the end. Beside it OUTPUT-run holds data, curves
and checkpoints: a run that was stopped goes on with the same command, and ends with the same weights. On several
devices: `torchrun --nproc-per-node N --no-python obliq train …`, or `accelerate launch --no_python obliq train …`.
"""
WHAT = "A recipe's name or FILE.toml; with --ablate a family."
JUDGED = ("test", "held-out")


@app.command(help=HELP)
@told_once()
def train(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help=WHAT)] = None,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="The adapter; by default ./RECIPE.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A value of the recipe, as in schedule.rate=1e-4."),
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("--file", metavar="PART=FILE", help="The rows of one of the recipe's parts.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="mini", help="The recipe's small version.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will do: steps, cut texts, contrast, memory.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again: remove what an earlier run has left at OUTPUT.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the bundled recipes.")] = False,
    shown: Annotated[bool, typer.Option("--show", help="Show the recipe's values and where they come from.")] = False,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Run a family of recipes and print its table; alone: list them.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N,N,…", help="Training seeds of each member of a family.")
    ] = None,
    members: Annotated[
        str | None, typer.Option("--members", metavar="A,B,…", help="Run these members of a family alone.")
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option("--queries", help="What a family is judged on: test, or held-out (which is so with --data mini)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train an adapter."""
    if data not in (None, "mini"):
        raise UserError(f"--data is {data!r}: only mini is known{near(data, ['mini'])}")
    told = [name for name, on in (("--list", listed), ("--show", shown), ("--ablate", ablate)) if on]
    if len(told) > 1:
        raise UserError(f"{' and '.join(told)} do not go together: give one of them")
    if ablate:
        _check_family({"--dry-run": dry_run, "--fresh": fresh}, changes or ())
    else:
        _check_single(seeds, queries or members)
    judged = _judged(queries, data)
    chosen = _members(members)
    given = _files(files or [])
    if listed:
        _list(as_json=as_json)
    elif ablate:
        _ablate(recipe, data, output, (changes or (), given, _seeds(seeds), judged, chosen), as_json=as_json)
    elif recipe is None:
        raise UserError("name a recipe, as in `obliq train obliq-ir-mini`; `obliq train --list` names them")
    else:
        from obliq_train import recipe as recipes

        found = recipes.read(recipe, changes or (), data)
        if shown:
            _show(found, changes or (), as_json=as_json)
        elif dry_run:
            _plan(found, given, as_json=as_json)
        else:
            _train(found, given, output or Path(found.name), fresh=fresh, as_json=as_json)


def _check_family(single: Mapping[str, bool], changes: Sequence[str]) -> None:
    if told := [name for name, on in single.items() if on]:
        raise UserError(f"{told[0]} is for one recipe: leave it out beside --ablate")
    if any(text.partition("=")[0].strip() == "run.seed" for text in changes):
        raise UserError("the seeds of a family are given as --seeds 0,1,2, not as run.seed")


def _check_single(seeds: str | None, judged: str | None) -> None:
    if seeds is not None:
        raise UserError("--seeds belongs to --ablate; one training's seed is --set run.seed=1")
    if judged is not None:
        raise UserError("--queries and --members belong to --ablate; `obliq compare` judges single adapters")


def _judged(queries: str | None, data: str | None) -> str:
    judged = queries or ("test" if data is None else "held-out")
    if judged not in JUDGED:
        raise UserError(f"--queries is {judged!r}: {' and '.join(JUDGED)} are known{near(judged, JUDGED)}")
    return judged


def _members(text: str | None) -> tuple[str, ...]:
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UserError(f"--members {text!r} is not of the form A,B")
    return names


def _files(texts: list[str]) -> dict[str, Path]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, _, file) in zip(texts, pairs, strict=True) if not name or not file]:
        raise UserError(f"--file {wrong[0]!r} is not of the form PART=FILE")
    return {name: Path(file) for name, _, file in pairs}


def _list(*, as_json: bool) -> None:
    from obliq_train import recipe as recipes
    from obliq_train.recipe_files import flat, layers

    rows: list[list[Any]] = []
    for name in recipes.names():
        found = recipes.read(name)
        above = layers(name)
        own = dict(flat({key: value for key, value in above[-1][1].items() if key not in {"purpose", "sources"}}))
        extends = above[-2][0] if len(above) > 1 else None
        differs = ", ".join(f"{key} = {_value(value)}" for key, value in own.items()) if extends else None
        rows.append([name, found.model.base, extends, differs, found.purpose])
    show.table(("recipe", "base", "extends", "differs in", "purpose"), rows, as_json=as_json)


def _show(recipe: Recipe, changes: Sequence[str], *, as_json: bool) -> None:
    changed = {change.partition("=")[0].strip() for change in changes}
    rows = [[key, value, _source(recipe, key, changed)] for key, value in _values(recipe).items()]
    if as_json:
        show.payload([{"key": key, "value": value, "source": source} for key, value, source in rows])
        return
    show.say(f"{recipe.name}: {recipe.purpose}")
    show.table(("key", "value", "source"), [[key, _value(value), source] for key, value, source in rows])
    for what, text in (("licence", recipe.licence), ("risk", recipe.risk)):
        if text:
            show.say(f"{what}: {text}")


def _values(recipe: Recipe) -> dict[str, Any]:
    """Return the values that decide something, by their keys as `--set` takes them."""
    from obliq_train.recipe_files import flat

    told = recipe.model_dump(exclude={"name", "purpose", "sources", "licence", "risk"})
    return {
        key: value
        for key, value in flat(told)
        if not recipe.ignores(key)
        and (not key.startswith("part.") or key in recipe.sources or value not in ("", None, False))
    }


def _source(recipe: Recipe, key: str, changed: set[str]) -> str:
    if key in changed:
        return "--set"
    return recipe.sources.get(key) or ("this recipe" if _is_set(recipe, key) else "default")


def _is_set(recipe: Recipe, key: str) -> bool:
    """Tell whether a file of the recipe, its own or one that it extends, says something of a key."""
    table: Any = recipe
    *above, last = key.split(".")
    if above[:1] == ["part"]:
        table = next(part for part in recipe.part if part.name == ".".join(above[1:]))
        return last in table.model_fields_set
    for name in above:
        table = getattr(table, name)
    return last in table.model_fields_set


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)


def _plan(recipe: Recipe, files: Mapping[str, Path], *, as_json: bool) -> None:
    """Say what the recipe will do; rows that can be built cheaply are built in a folder that goes away."""
    from tempfile import TemporaryDirectory

    from obliq_train import at_hand, plan

    with TemporaryDirectory(prefix="obliq-plan-") as place, at_hand.promptly(recipe, files):
        data, absent = at_hand.rows(recipe, Path(place), files)
        words, why = None, ""
        try:
            words = at_hand.tokenizer(recipe) if data is not None else None
        except UserError as error:
            why = str(error)
        found = plan.plan(recipe, data, words, absent, (why,) if why else ())
    if as_json:
        show.payload(found.to_dict())
        return
    show.say(f"{found.recipe}: {recipe.purpose}")
    show.table(("what", "value"), found.table())
    for note in found.notes:
        show.say(note)
    for wanted in found.missing:
        show.warn(f"not at hand: {wanted}")


def _ablate(
    family: str | None,
    data: str | None,
    output: Path | None,
    given: tuple[Sequence[str], Mapping[str, Path], Sequence[int], str, Sequence[str]],
    *,
    as_json: bool,
) -> None:
    from obliq_train import ablation

    if family is None:
        rows = [(name, found.purpose) for name, found in ablation.FAMILIES.items()]
        show.table(("family", "what it answers"), rows, as_json=as_json)
        return
    if family not in ablation.FAMILIES:
        names = ", ".join(ablation.FAMILIES)
        raise UserError(f"no family is called {family!r}{near(family, ablation.FAMILIES)}; there are {names}")
    if output is None:
        raise UserError("say where the family's adapters, runs and tables go: -o FOLDER")
    changes, files, seeds, queries, members = given
    with _stoppable():
        found = ablation.run(
            family, data=data, output=output, changes=changes, seeds=seeds, files=files, queries=queries,
            members=members,
        )  # fmt: skip
    if as_json:
        show.payload(found.to_dict())
        return
    for view in found.tables:
        show.table(view.columns, view.rows, title=view.title)
    for note in found.notes:
        show.say(note)


@contextmanager
def _stoppable() -> Iterator[None]:
    """End as a shell reports a signal where somebody has asked for an end."""
    from obliq_train import launching
    from obliq_train.trainer import Stopped

    try:
        yield
    except Stopped as stopped:
        if launching.first():
            show.fail(str(stopped))
        raise typer.Exit(stopped.status) from stopped


def _seeds(text: str | None) -> tuple[int, ...]:
    parts = "0" if text is None else text
    if not all(part.strip().isdecimal() for part in parts.split(",")):
        raise UserError(f"--seeds {parts!r} is not of the form 0,1,2")
    return tuple(int(part) for part in parts.split(","))


def _train(recipe: Recipe, files: Mapping[str, Path], output: Path, *, fresh: bool, as_json: bool) -> None:
    from obliq_train import launching
    from obliq_train.card import number

    with _stoppable():
        done = launching.run(recipe, output, files, fresh=fresh)
    if not launching.first():
        return
    ask = launching.evaluation(recipe, output)
    if as_json:
        show.payload({**done.manifest, "folder": str(done.folder), "evaluate": ask})
    else:
        took = f"{done.steps:,} steps in {done.seconds:,.0f} s, last loss {number(done.loss)}"
        show.say(f"{done.folder}: {took}; evaluate it with: {ask}")
