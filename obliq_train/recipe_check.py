"""What is wrong with a recipe: all of it at once, each in a sentence that names the key as `--set` would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from obliq_eval.errors import near
from obliq_train.recipe_files import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Keys = Mapping[str, "Keys | None"]

NEIGHBOURS, RANDOM, MATCHED = "neighbours", "random", "matched:"
TOLD = re.compile(r"^(?:Value error, )?(.)(.*)$", re.DOTALL)


def keys_of(model: type[BaseModel]) -> Keys:
    """Return `{key: keys of its table}`, None for a key that is no table; parts are a table."""
    return {name: _below(field.annotation) for name, field in model.model_fields.items()}


def _below(annotation: Any) -> Keys | None:
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return keys_of(kind)
    return None


def problems(data: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Return what is wrong with a recipe, one sentence each.

    Args:
        data: The recipe, merged.
        model: Its record.
    """
    known, found = keys_of(model), list[str]()
    try:
        model.model_validate(tuples(data))
    except ValidationError as error:
        found = [_sentence(one["loc"], one["type"], one["msg"], data, known) for one in error.errors()]
    return [*found, *_crossed(data), *_sources(data, known)]


def tuples(value: Any) -> Any:
    """Return JSON-like values with tuples in place of lists, which frozen records hold."""
    if isinstance(value, dict):
        return {key: tuples(one) for key, one in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def value_at(data: Mapping[str, Any], key: str) -> Any:
    """Return what a recipe says under a key, `part.NAME.KEY` for one of a part; None if nothing."""
    first, _, rest = key.partition(".")
    if first == "part" and rest:
        first, _, rest = rest.partition(".")
        held: Any = next((part for part in parts_of(data) if name_of(part) == first), None)
    else:
        held = data.get(first)
    if not rest:
        return held
    return held.get(rest) if isinstance(held, dict) else None


def _sentence(loc: Sequence[int | str], kind: str, message: str, data: Mapping[str, Any], known: Keys) -> str:
    place, table = list[str](), known
    for one in loc[:-1]:
        if isinstance(one, int):
            parts = data.get(place[0]) if place == ["part"] else None
            if parts is not None:
                place.append(name_of(parts[one]) or str(one + 1))
            continue
        place.append(one)
        table = table.get(one) or {}
    last = loc[-1]
    where = ".".join([*place, last] if isinstance(last, str) else place)
    if kind == "extra_forbidden":
        return f"{where} is not a key of a recipe{_meant(str(last), place, table, known)}"
    if kind == "missing":
        return f"{where} is missing"
    if where == "part":
        return "part: each part is a table of its own, under [[part]]"
    return f"{where}: {TOLD.sub(lambda m: m[1].lower() + m[2], message)}"


def _meant(key: str, place: Sequence[str], table: Keys, known: Keys) -> str:
    """Return a near name of the same table, or the same name in another one."""
    elsewhere = next((name for name, below in known.items() if below and key in below and name not in place), None)
    if elsewhere == "part":
        return f"; each part has its own {key}"
    return f'; did you mean "{elsewhere}.{key}"?' if elsewhere else near(key, table)


def parts_of(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a recipe that nothing has validated yet."""
    parts = data.get("part")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list | tuple) else []


def _crossed(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what does not go together; what has a wrong form is told about elsewhere, and passed over here."""
    schedule = data.get("schedule")
    schedule = schedule if isinstance(schedule, dict) else {}
    if len({"epochs", "steps"} & schedule.keys()) != 1:
        yield "schedule: give one of epochs and steps"
    parts = parts_of(data)
    named = [name_of(part) for part in parts]
    if not parts and not data.get("part"):
        yield "there is no [[part]] to train on"
    for part in parts:
        name = name_of(part)
        if name and not re.fullmatch(r"\w[\w-]*", name):
            yield f"part {name!r}: a name is made of letters, digits, hyphens and underscores"
        if name and named.count(name) > 1:
            yield f"part.{name}: another part has the same name"
            named = [one for one in named if one != name]  # said once
        if name:
            yield from _part(part, f"part.{name}")
    yield from _left_out(data, parts)


def _part(part: Mapping[str, Any], place: str) -> Iterator[str]:
    built = [key for key in ("teacher", "sentences") if part.get(key)]
    ways = (["file"] if part.get("file") else []) + built
    if len(ways) > 1:
        yield f"{place}: {' and '.join(ways)} are given, and rows come from one of them: leave the others out"
    if built and not part.get("corpus"):
        yield f"{place}: {built[0]} needs the corpus that rows are built from"
    if part.get("corpus") and not ways:
        yield f"{place}: corpus is given, and nothing that is done with it: a teacher, sentences = true, or a file"
    only = part.get("only", "")
    if isinstance(only, str) and only and not (part.get("corpus") and all(only.partition("="))):
        yield f"{place}.only is {only!r}, not FIELD=VALUE of a corpus"
    positives = part.get("positives", NEIGHBOURS)
    if not isinstance(positives, str):
        return
    if positives not in (NEIGHBOURS, RANDOM) and not (positives.startswith(MATCHED) and positives != MATCHED):
        hint = near(positives, (NEIGHBOURS, RANDOM))
        yield f"{place}.positives is {positives!r}, not neighbours, random or matched:FIELD{hint}"
    elif positives != NEIGHBOURS and not part.get("teacher"):
        yield f"{place}.positives: {positives} replaces a teacher's neighbours, so it needs a corpus and a teacher"
    if part.get("apart") and not part.get("teacher"):
        yield f"{place}.apart keeps a teacher's edges apart, so it needs a corpus and a teacher"


def _left_out(data: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    out = data.get("leave_out")
    if not isinstance(out, dict) or not parts:
        return
    gone = set[str]()
    for key, field in (("tasks", "task"), ("mechanisms", "mechanism"), ("parts", "name")):
        known = [part[field] for part in parts if isinstance(part.get(field), str) and part[field]]
        told = out.get(key, ())
        for name in told if isinstance(told, list | tuple) else ():
            if name not in known:
                yield f"leave_out.{key}: no part has the {field} {name!r}{near(str(name), known)}"
            gone |= {name_of(part) for part in parts if part.get(field) == name}
    if {name_of(part) for part in parts} <= gone:
        yield "leave_out leaves no part to train on"


def _sources(data: Mapping[str, Any], known: Keys) -> Iterator[str]:
    sources = data.get("sources")
    for key in sources if isinstance(sources, dict) else ():
        if exists(key, data, known):
            continue
        names = [f"part.{name_of(part)}.{field}" for part in parts_of(data) for field in known.get("part") or ()]
        names += [
            name if below is None else f"{name}.{field}" for name, below in known.items() for field in below or ("",)
        ]
        yield f"sources: {key} is no key of this recipe{near(key, names)}"


def exists(key: str, data: Mapping[str, Any], known: Keys) -> bool:
    """Return whether a recipe has a key, `part.NAME.KEY` being one of a part that it has; or the table."""
    first, *rest = key.split(".")
    if first == "part" and rest and rest.pop(0) not in map(name_of, parts_of(data)):
        return False
    if first not in known or len(rest) > 1:
        return False
    return not rest or rest[0] in (known[first] or {})
