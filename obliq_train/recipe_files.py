"""Recipes as files: what one says beyond another, changes of single keys, and a resolved recipe as TOML again."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI, MIRROR_PREFIX
from obliq_eval.errors import UserError, near
from obliq_eval.toml import read_toml
from obliq_models.specs import anchored as anchored_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent / "recipes"
PACKAGE = "package:"
"""In front of a file that ships with this package, in `FOLDER`'s sibling `mini`."""
ALL = "all"
"""What a dose says that takes the number of another recipe back."""
INSTEAD: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "schedule": {"epochs": ("steps",), "steps": ("epochs",)},
    "part": {"file": ("teacher", "sentences"), "teacher": ("file", "sentences"), "sentences": ("file", "teacher")},
}
"""Keys that take the place of others, by table: a recipe that sets one drops what the recipe under it says of these."""


def names() -> tuple[str, ...]:
    """Return the names of the bundled recipes."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def place_of(reference: str, beside: Path | None = None) -> Path:
    """Return the file of a recipe: a bundled one by its name, any other by its path.

    Args:
        reference: The name, or FILE.toml.
        beside: Folder that a path is relative to.

    Raises:
        UserError: If no recipe is called so.
    """
    if reference in names():
        return FOLDER / f"{reference}.toml"
    if reference.endswith(".toml"):
        return (beside or Path()) / reference
    hint = near(reference, names())
    raise UserError(f"no recipe is called {reference!r}{hint} (a recipe of your own is a file: {reference}.toml)")


def layers(reference: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a recipe's files as `(name, content)`, what is extended first.

    Paths in them are made absolute, each from the folder of its own file, and `[sources]` is made flat.

    Raises:
        UserError: If a file cannot be read, extends what is not there, or itself.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    path, seen = place_of(reference), set[Path]()
    while True:
        try:
            place = path.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL
            raise UserError(f"cannot read {path}: {error}") from error
        if place in seen:
            raise UserError(f"{path}: the recipe extends itself; name another after extends")
        seen.add(place)
        data = read_toml(path)
        above = data.pop("extends", None)
        name = data.pop("name", path.stem)
        found.append((str(name), absolute(data, path.parent)))
        if above is None:
            return found[::-1]
        if not isinstance(above, str):
            raise UserError(f"{path}: extends must be a recipe's name or file, a text")
        try:
            path = place_of(above, path.parent)
        except UserError as error:
            raise UserError(f"{path}: extends: {error}") from error


def merged(below: Mapping[str, Any], above: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """Return one recipe laid over another: tables deeply, parts by their names, anything else replaced."""
    instead = INSTEAD.get(table, {})
    gone = {other for key, value in above.items() if value for other in instead.get(key, ())} - above.keys()
    made = {key: value for key, value in below.items() if key not in gone}
    for key, value in above.items():
        held = made.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            made[key] = merged(held, value, key)
        elif key == "part" and not table and isinstance(value, list):
            made[key] = _parts(held if isinstance(held, list) else [], value)
        elif table == "part" and key == "dose" and value == ALL:
            made.pop(key, None)
        else:
            made[key] = value
    return made


def _parts(below: Sequence[Any], above: Sequence[Any]) -> list[Any]:
    """Return parts laid over parts: the same name, the same part; others are put after them."""
    made = list(below)
    for part in above:
        name = name_of(part)
        at = next((n for n, held in enumerate(below) if name and name_of(held) == name), None)
        if at is None:
            made.append(merged({}, part, "part") if isinstance(part, dict) else part)
        else:
            made[at] = merged(made[at], part, "part")
    return made


def name_of(part: object) -> str:
    """Return the name of a part that nothing has validated yet; empty if it has none."""
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) else ""


def change(text: str) -> dict[str, Any]:
    """Return `KEY=VALUE` as a recipe that says nothing else.

    Args:
        text: The key with its table, `part.NAME.KEY` for one of a part; the value as TOML, or a bare word as text.

    Raises:
        UserError: If it is of no such form.
    """
    path, equals, value = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise UserError(f"{text!r} is not of the form KEY=VALUE, as in schedule.rate=1e-4")
    if keys[0] == "part":
        if len(keys) != 3:
            raise UserError(f"{text!r}: write part.NAME.KEY=VALUE, as in part.writing-graph.dose=1000")
        return {"part": [{"name": keys[1], keys[2]: _value(value.lstrip(), text)}]}
    made: Any = _value(value.lstrip(), text)
    for key in reversed(keys):
        made = {key: made}
    found: dict[str, Any] = made
    return found


def _value(value: str, text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError) as error:  # no TOML, a number of 5,000 digits, a thousand brackets
        if not isinstance(error, tomllib.TOMLDecodeError):
            raise UserError(f"{text[:60]!r}…: the value cannot be read: {error}") from error
        if value[:1] in {'"', "'", "[", "{"} or "\n" in value:
            raise UserError(f"{text!r}: the value is not TOML: {error}") from error
        return value
    if set(found) != {"value"}:
        raise UserError(f"{text!r}: give one value")
    return found["value"]


def absolute(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe whose paths mean the same from anywhere, its own being relative to a folder."""
    made = dict(data)
    if isinstance(model := data.get("model"), dict):
        made["model"] = {**model, **_with(model, "base", lambda text: _folder(text, folder))}
    if isinstance(parts := data.get("part"), list):
        made["part"] = [_part(part, folder) if isinstance(part, dict) else part for part in parts]
    if isinstance(told := data.get("evaluation"), dict) and isinstance(tasks := told.get("tasks"), list):
        made["evaluation"] = {**told, "tasks": [_source(one, folder) if isinstance(one, str) else one for one in tasks]}
    if isinstance(sources := data.get("sources"), dict):
        made["sources"] = dict(flat(sources))
    return made


def _part(part: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    made = dict(part)
    made |= _with(part, "file", lambda text: text if text.startswith(PACKAGE) else str((folder / text).resolve()))
    made |= _with(part, "descriptions", lambda text: str((folder / text).resolve()))
    made |= _with(part, "corpus", lambda text: _source(text, folder))
    return made | _with(part, "teacher", lambda text: anchored_model(text, folder))


def _with(table: Mapping[str, Any], key: str, rule: Any) -> dict[str, Any]:
    """Return a text of a table, changed, where it is there and not empty."""
    value = table.get(key)
    return {key: rule(value)} if isinstance(value, str) and value else {}


def _folder(text: str, folder: Path) -> str:
    return str((folder / text).resolve()) if (folder / text).is_dir() else text


def _source(text: str, folder: Path) -> str:
    """Return documents' place: what is no task, and is there or looks like a path, is relative to the folder."""
    if text in OFFICIAL or text in MINI or text.startswith((MIRROR_PREFIX, PACKAGE)):
        return text
    path = folder / text
    return str(path.resolve()) if path.exists() or path.suffix or "/" in text else text


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted key, value)` of tables in tables; parts by their names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        elif key == "part" and _is_tables(value):
            for part in value:
                yield from flat({k: v for k, v in part.items() if k != "name"}, f"{before}{key}.{name_of(part)}.")
        else:
            yield f"{before}{key}", value


def toml_of(data: Mapping[str, Any]) -> str:
    """Return a recipe as TOML.

    Args:
        data: Texts, numbers, truth values and arrays of these; tables of them; arrays of tables. None is left out.
    """
    lines = list(_pairs(data))
    for key, value in data.items():
        if isinstance(value, dict) and any(one is not None for one in value.values()):
            lines += ["", f"[{key}]", *_pairs(value)]
        elif _is_tables(value):
            lines += [line for table in value for line in ("", f"[[{key}]]", *_pairs(table))]
    return "\n".join(lines) + "\n"


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, dict) for one in value)


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None and not isinstance(value, dict) and not _is_tables(value):
            yield f"{key if re.fullmatch('[A-Za-z0-9_-]+', key) else _text(key)} = {_written(value)}"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value)


def _text(value: str) -> str:
    """Return a text as TOML's basic string, whose escapes are JSON's; TOML wants DEL escaped as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
