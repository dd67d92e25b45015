"""Lenses as data: which latent attribute is looked for, and the prompts through which queries for it are written.

A lens is a TOML file. `mechanism` chooses the prompt of Stage B (`stages/`), `attribute` and `ignore` are filled into
it; Stage A is the lens's own prompt (`[describe]`) or is built from the two as well. So a lens of a user's own needs
three sentences.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.toml import read_toml
from obliq_models import prompts
from obliq_models.prompts import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent
STAGES = FOLDER / "stages"
Mechanism = Literal["descriptive", "analogue", "tip-of-the-tongue", "generic"]
_NEEDED = {"version": int, "purpose": str, "mechanism": str}
_OPTIONAL = {"attribute": str, "ignore": str, "task": str, "instruction": str, "caps": dict, "describe": dict}
_PROMPT = {"version": int, "purpose": str, "answer": str, "system": str, "user": str, "schema": dict}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Lens:
    """How queries are written for one latent attribute.

    Args:
        name: Name of the file, without its ending.
        version: Changes whenever the lens does.
        purpose: One line for people.
        mechanism: How a query relates to its document.
        query: Prompt of Stage B; its one placeholder is `material`.
        describe: Prompt of Stage A, likewise; None for a lens without an attribute.
        task: The task that it was written for; empty for none.
        instruction: The instruction that stands in training rows beside its queries.
        caps: The gate's caps that differ from the usual ones, by measure (`obliq_train.gate`).
    """

    name: str
    version: int
    purpose: str
    mechanism: Mechanism
    query: Prompt
    describe: Prompt | None = None
    task: str = ""
    instruction: str = ""
    caps: Mapping[str, float] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        """Version and the first 8 hexadecimal digits of the SHA-256 of both prompts as they are sent."""
        told = [prompt.revision for prompt in (self.describe, self.query) if prompt is not None]
        return f"{self.version}-{hashlib.sha256(' '.join(told).encode()).hexdigest()[:8]}"

    @property
    def prompt(self) -> str:
        """What rows say about the prompts: `name@revision`."""
        return f"{self.name}@{self.revision}"


def names() -> tuple[str, ...]:
    """Return the names of the bundled lenses."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(reference: str) -> Lens:
    """Return a bundled lens by its name, or a user's own by the path of its TOML file.

    Raises:
        UserError: If there is none, or the file is not a lens; all faults at once.
    """
    if reference.endswith(".toml"):
        return read(Path(reference))
    if reference not in names():
        raise UserError(
            f"no lens is called {reference!r}{near(reference, names())} (there are {', '.join(names())}; a lens of "
            "your own is a TOML file with version, purpose, mechanism, attribute and ignore)"
        )
    return read(FOLDER / f"{reference}.toml")


def read(path: Path) -> Lens:
    """Read a lens from a TOML file.

    Raises:
        UserError: If the file cannot be read, or a key is missing, unknown or of the wrong form; all at once.
    """
    data = read_toml(path)
    raise_all(_problems(data), str(path))
    mechanism: Mechanism = data["mechanism"]
    fill = {"attribute": data.get("attribute", "").strip(), "ignore": data.get("ignore", "").strip()}
    describe = None
    if mechanism != "generic":
        own = data.get("describe")
        base = prompts.read(STAGES / "describe.toml") if own is None else _own(path, own)
        describe = _filled(base, fill)
    return Lens(
        name=path.stem,
        version=data["version"],
        purpose=data["purpose"],
        mechanism=mechanism,
        query=_filled(prompts.read(STAGES / f"{mechanism}.toml"), fill),
        describe=describe,
        task=data.get("task", ""),
        instruction=data.get("instruction", ""),
        caps={name: float(value) for name, value in data.get("caps", {}).items()},
    )


def _problems(data: Mapping[str, Any]) -> list[str]:
    known = _NEEDED | _OPTIONAL
    found = [f"{key} is missing" for key in _NEEDED if key not in data]
    found += [f"{key} is not a key of a lens{near(key, known)}" for key in sorted(data.keys() - known.keys())]
    found += _faults(data, known)
    mechanism = data.get("mechanism")
    if isinstance(mechanism, str) and mechanism not in get_args(Mechanism):
        hint = near(mechanism, get_args(Mechanism))
        found.append(f"mechanism is {mechanism!r}, not one of {', '.join(get_args(Mechanism))}{hint}")
    if mechanism == "generic":
        unused = sorted({"attribute", "ignore", "describe"} & data.keys())
        found += [f"{key} means nothing to the generic mechanism: take it out" for key in unused]
    else:
        empty = [key for key in ("attribute", "ignore") if not str(data.get(key, "")).strip()]
        found += [f"{key} is missing or empty: say it in half a sentence" for key in empty]
    found += [
        f"{key} holds {match[0]}, which would be taken for a placeholder: write it without braces"
        for key in ("attribute", "ignore")
        if isinstance(data.get(key), str) and (match := _PLACEHOLDER.search(data[key]))
    ]
    return found + _cap_problems(data.get("caps", {}))


def _faults(data: Mapping[str, Any], known: Mapping[str, type], place: str = "") -> list[str]:
    return [
        f"{place}{key} is {type(data[key]).__name__}, not {kind.__name__}"
        for key, kind in known.items()
        if key in data and (not isinstance(data[key], kind) or isinstance(data[key], bool))
    ]


def _cap_problems(caps: Any) -> list[str]:
    from obliq_train.gate import Caps

    return Caps.problems(caps) if isinstance(caps, dict) else []


def _own(path: Path, data: Mapping[str, Any]) -> Prompt:
    """Return a lens's own prompt for Stage A.

    Raises:
        UserError: If it lacks a part, or is not about the document.
    """
    missing = [f"describe.{key} is missing" for key in ("version", "system", "user") if key not in data]
    unknown = data.keys() - _PROMPT.keys()
    missing += [f"describe.{key} is not a key of a prompt" for key in sorted(unknown)]
    missing += _faults(data, _PROMPT, "describe.")
    raise_all(missing, str(path))
    prompt = Prompt(
        name=f"{path.stem}-describe",
        version=data["version"],
        purpose=data.get("purpose", ""),
        answer="description",
        system=data["system"],
        user=data["user"],
        schema=data.get("schema") or prompts.read(STAGES / "describe.toml").schema,
    )
    if "material" not in prompt.placeholders or prompt.placeholders - {"material", "attribute", "ignore"}:
        raise UserError(f"{path}: describe must hold {{material}}, and may hold {{attribute}} and {{ignore}}")
    return prompt


def _filled(prompt: Prompt, values: Mapping[str, str]) -> Prompt:
    """Return a prompt with the lens's own words in it; what is left is `material`."""

    def fill(template: str) -> str:
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)

    return replace(prompt, system=fill(prompt.system), user=fill(prompt.user), attribute=values.get("attribute", ""))
