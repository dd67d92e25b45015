"""Policies as data: which reranker each task gets; TOML files, the paper's among them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.home import whole_file
from obliq_eval.toml import read_toml
from obliq_models.rerankers.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent
_KEYS = {"about", "tasks", "dev"}
_MINI = "OBLIQ-Mini-"


@dataclass(frozen=True)
class Policy:
    """A reranker for each task.

    Args:
        name: Name of the file, without its ending.
        steps: `{task: step}`. A mini task without a step of its own gets its official sibling's.
        about: Where it comes from.
        dev: `{task: what was seen on dev queries}`, where it was chosen by `obliq policy select`.
    """

    name: str
    steps: Mapping[str, Step]
    about: str = ""
    dev: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """SHA-256 of what it does: the tasks with their steps, in any order, and nothing else."""
        steps = {task: step.table() for task, step in self.steps.items()}
        for task, table in steps.items():
            if "prompt" in table and (prompt := self.steps[task].load_prompt()):  # a file may change, or lie elsewhere
                table["prompt"] = f"{prompt.name}@{prompt.revision}"
        text = json.dumps(steps, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def step(self, task: str) -> Step:
        """Return the step for a task.

        Raises:
            UserError: If it has none.
        """
        found = self.steps.get(task) or self.steps.get(task.replace(_MINI, "OBLIQ-", 1))
        if found is None:
            raise UserError(
                f"the policy {self.name} says nothing of {task}, only of {', '.join(self.steps)}: choose a reranker "
                f'for it in a policy file of your own ([tasks."{task}"]), or name one in place of the policy'
            )
        return found

    def table(self) -> dict[str, Any]:
        """Return what a manifest says of it: its tasks' steps."""
        return {task: step.table() for task, step in self.steps.items()}

    def to_toml(self) -> str:
        """Return the policy as a TOML file's text."""
        lines = [f"about = {_value(self.about)}"]
        for task, step in self.steps.items():
            lines += ["", f"[tasks.{_value(task)}]", *_lines(step.table())]
        for task, figures in self.dev.items():
            lines += ["", f"[dev.{_value(task)}]", *_lines(figures)]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with whole_file(path) as part:
            part.write_text(self.to_toml(), "utf-8")


def names() -> tuple[str, ...]:
    """Return the names of the bundled policies."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(text: str) -> Policy:
    """Return a bundled policy by its name, or one from a TOML file.

    Raises:
        UserError: If there is none, or it is not of the form; every problem at once.
    """
    if text in names():
        return read(FOLDER / f"{text}.toml")
    known = names()
    if not text.endswith(".toml"):
        raise UserError(f"{text!r} is neither a policy file (.toml) nor one of {', '.join(known)}{near(text, known)}")
    return read(Path(text))


def read(path: Path) -> Policy:
    """Read a policy from a file.

    Raises:
        UserError: If it cannot be read or is not of the form; every problem at once.
    """
    data = read_toml(path)
    policy = from_table(data, path.stem, str(path))
    return replace(policy, steps={task: _beside(step, path.parent) for task, step in policy.steps.items()})


def from_table(data: Mapping[str, Any], name: str, source: str) -> Policy:
    """Return the policy that a table describes.

    Raises:
        UserError: If it is not of the form; every problem at once.
    """
    problems = [f"{key} is not a key of a policy{near(key, _KEYS)}" for key in sorted(data.keys() - _KEYS)]
    kinds = {"about": (str, "a text"), "dev": (dict, "a table")}
    problems += [
        f"{key} is {data[key]!r}, not {what}"
        for key, (kind, what) in kinds.items()
        if key in data and not isinstance(data[key], kind)
    ]
    tasks = data.get("tasks")
    if not isinstance(tasks, dict) or not tasks:
        problems.append('it names no task: write [tasks."OBLIQ-Math"] and reranker = "tourrank" below it')
        tasks = {}
    steps: dict[str, Step] = {}
    for task, table in tasks.items():
        if not isinstance(table, dict):
            problems.append(f"{task} is {table!r}, not a table with a reranker")
            continue
        try:
            steps[task] = Step.of(table)
        except UserError as error:
            problems.append(f"{task}: {str(error).removeprefix('the step: ')}")
    raise_all(problems, source)
    return Policy(name, steps, data.get("about", ""), data.get("dev", {}))


def _beside(step: Step, folder: Path) -> Step:
    """Return the step with its prompt's file looked for beside the policy."""
    return replace(step, prompt=str(folder / step.prompt)) if step.prompt.endswith(".toml") else step


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    """Return a value as TOML spells it: its strings, numbers and inline tables are nearly JSON's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
