"""Families of recipes that differ in one thing, trained one after the other and compared with their control.

The paper's tables of this kind are H.1 (the teacher's graph) and N.1 (the dose); the others are its own "what we tried
that did not work" (appendix N) and evaluations that it calls open. What is chosen is chosen on dev queries; the tables
are over test queries, or over those of them that are held out, which is so by default for small data: its recipes train
on the documents of a task whose other test queries ask about them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from obliq_eval import show
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.home import whole_file
from obliq_train import ablation_tables, launching, outputs, trainer
from obliq_train import recipe as recipes
from obliq_train.checkpoints import Folder
from obliq_train.data import prepare
from obliq_train.provenance import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from obliq_eval.comparison_tables import View
    from obliq_train.ablation_runs import Runs
    from obliq_train.ablation_tables import Table
    from obliq_train.recipe import Recipe

PAPER = "obliq-ir-3b"
COVERAGE = "test"


@dataclass(frozen=True)
class Family:
    """Recipes that are compared with the control.

    Args:
        purpose: What they answer, one line.
        members: Names of recipes; `*` stands for anything.
        small: Recipes that are there for small data alone.
        frozen: Models that are not trained and stand beside them, by what follows `-m`.
        teachers: Whether the frozen teachers of the control stand beside them too.
    """

    purpose: str
    members: tuple[str, ...]
    small: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    teachers: bool = False


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "teacher-graph": Family(
            "what the teacher's graph contributes, beside the rows that it brings (table H.1)",
            ("random-graph", "k1", "k3", "k5", "k10", "second-teacher", "no-distillation"),
            small=("mini-decade", "mini-own-graph", "mini-transductive"),
            frozen=("bm25",),
            teachers=True,
        ),
        "dose": Family(
            "how many rows of the graph, beside the synthetic ones or in their place (table N.1, figure 2)",
            ("no-distillation", "dose-*"),
            small=("mini-dose-*",),
        ),
        "losses": Family("a cross-encoder's scores for the contrast, or beside it", ("margin-mse", "hybrid-loss")),
        "leave-out-task": Family(
            "what carries over to a task that was not trained on",
            ("leave-out-twitter", "leave-out-math", "leave-out-writing", "leave-out-congress"),
        ),
        "leave-out-mechanism": Family(
            "what carries over to a mechanism that was not trained on",
            ("leave-out-descriptive", "leave-out-analogue", "leave-out-tip-of-the-tongue"),
        ),
        "lens": Family("who or what wrote the synthetic queries", ("generic-lens", "second-generator")),
        "context": Family("longer texts in training", ("context-2048",)),
        "seeds": Family(
            "how far training seeds lie apart, beside the base and the frozen teacher",
            (),
            frozen=("bm25",),
            teachers=True,
        ),
        "anchor": Family("the document itself as the anchor of its edges", ("document-anchors",)),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Member:
    """A member of a family, trained once for each seed.

    Args:
        name: Its name in the tables.
        recipes: Its recipe, by seed.
    """

    name: str
    recipes: Mapping[int, Recipe]


@dataclass(frozen=True)
class Ablation:
    """A family's results.

    Args:
        family: Its name.
        data: `mini`, or None for the paper's own data.
        control: Name of the recipe that the others are compared with.
        seeds: Training seeds.
        results: One table for each task.
        missing: `{member: why it was not run}`.
        same: `{member: the member that has the very same recipe}`; it was trained once.
        folders: `{member: the adapters' folders, one for each seed}`.
    """

    family: str
    data: str | None
    control: str
    seeds: tuple[int, ...]
    results: tuple[Table, ...]
    missing: Mapping[str, str]
    same: Mapping[str, str]
    folders: Mapping[str, tuple[str, ...]]

    @property
    def tables(self) -> tuple[View, ...]:
        """The tables: all tasks at once, each task with its intervals, and what was not run."""
        title = f"{self.family}: {FAMILIES[self.family].purpose}"
        return ablation_tables.views(title, self.results, self.missing)

    @property
    def notes(self) -> tuple[str, ...]:
        """What must stand under the tables, one sentence each."""
        same = tuple(f"{name} has the recipe of {other}, which was trained once" for name, other in self.same.items())
        return (*ablation_tables.notes(self.results, self.seeds), *same)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, at full precision."""
        return {
            "family": self.family,
            "data": self.data,
            "control": self.control,
            "seeds": list(self.seeds),
            "tasks": [table.to_dict() for table in self.results],
            "not run": dict(self.missing),
            "same recipe": dict(self.same),
            "adapters": {name: list(folders) for name, folders in self.folders.items()},
            "notes": list(self.notes),
        }

    def markdown(self) -> str:
        """Return the tables and what stands under them as Markdown."""
        from obliq_eval import markup

        tables = [markup.markdown(view.columns, view.rows, view.title) for view in self.tables]
        return "\n\n".join([*tables, "\n".join(f"- {markup.escape_markdown(note)}" for note in self.notes)]) + "\n"


def run(
    family: str,
    *,
    data: str | None = "mini",
    output: Path,
    changes: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    files: Mapping[str, Path] = MappingProxyType({}),
    queries: str = COVERAGE,
    members: Collection[str] = (),
) -> Ablation:
    """Train the members of a family that are not trained yet, evaluate them, and write the tables.

    The tables lie in `output` as FAMILY.md and FAMILY.json, each adapter in a folder of its member's name, with
    `-seedN` behind it for a seed other than 0. A member that cannot be run is named with the reason.

    Args:
        family: One of `FAMILIES`.
        data: `mini` for the small versions of the recipes; None for them as they are.
        output: Folder.
        changes: `KEY=VALUE` for every recipe, as `obliq train --set` takes it.
        seeds: Training seeds; with several, a query's score is its mean over them.
        files: `{part: file of its rows}`, for parts that are not built here.
        queries: Which queries are judged: `test`, or those `held-out` where training saw documents of the others.
        members: The only ones that are run beside the control; by default all of the family.

    Raises:
        UserError: If there is no such family, the control cannot be trained, or a folder holds another recipe.
    """
    from obliq_eval.reference import open_task

    if family not in FAMILIES:
        raise UserError(f"no family is called {family!r}{near(family, FAMILIES)}; there are {', '.join(FAMILIES)}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise UserError("give each training seed once, and at least one")
    control = PAPER if data is None else f"obliq-ir-{data}"
    first = _read(control, control, data, changes, seeds)
    found, missing = [first], dict[str, str]()
    references = {_short(reference, data): reference for reference in _references(FAMILIES[family], data)}
    unknown = [name for name in members if name not in references]
    raise_all([f"{family} has no member {name!r}{near(name, references)}" for name in unknown], "--members")
    for name, reference in references.items():
        if members and name not in members:
            missing[name] = "not asked for"
            continue
        try:
            found.append(_read(name, reference, data, changes, seeds))
        except UserError as error:
            missing[name] = str(error)
    _check_files(files, found)
    own = first.recipes[seeds[0]]
    judged = {task: open_task(task, queries) for task in _tasks(own)}  # what cannot be judged is not trained
    same = _same(found)
    adapters = _train([member for member in found if member.name not in same], output, files, missing)
    missing |= {name: f"it has the recipe of {one}, which was not run" for name, one in same.items() if one in missing}
    adapters = {one.name: adapters[same.get(one.name, one.name)] for one in found if one.name not in missing}
    runs = _runs(adapters, own, _frozen(FAMILIES[family], own), output, tuple(judged), missing)
    results = tuple(ablation_tables.table(task, reference, runs, same) for task, reference in judged.items())
    folders = {name: tuple(str(folder) for _, folder in some) for name, some in adapters.items()}
    made = Ablation(family, data, control, tuple(seeds), results, missing, same, folders)
    _write(made, output)
    return made


def finished(recipe: Recipe, folder: Path, files: Mapping[str, Path] = MappingProxyType({})) -> bool:
    """Tell whether a folder holds the adapter that a recipe makes.

    The rows are compared as long as those of the training are still beside it; without them the recipe tells.

    Args:
        recipe: The recipe.
        folder: The adapter's folder.
        files: `{part: file of its rows}`, in the place of what the recipe says.

    Raises:
        UserError: If it holds another recipe's, one of other rows, other weights than those that were written, or
            something else.
    """
    if not folder.exists():
        return False
    try:
        told = json.loads((folder / outputs.MANIFEST).read_text("utf-8"))
        digest, rows, weights = told["digest"], told["rows"]["sha256"], dict(told.get("weights") or {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder} is there and holds no finished training: move it away, or choose another --output"
        ) from error
    end = "choose another --output, or move it away"
    if digest != recipe.digest:
        raise UserError(f"{folder} holds an adapter of another recipe: {end}")
    for name, value in weights.items():
        if sha256(folder / name) != value:
            raise UserError(f"{folder / name} is not what the training wrote: {end}")
    beside = Folder.beside(folder).path
    there = launching.first() and (beside / "rows.jsonl").is_file()
    if there and sha256(prepare(recipe, beside, files).rows) != rows:
        raise UserError(f"{folder} holds an adapter that was trained on other rows: {end}")
    return True


def _references(family: Family, data: str | None) -> Iterator[str]:
    known = recipes.names()
    for pattern in (*family.members, *(family.small if data is not None else ())):
        if "*" in pattern:
            yield from (name for name in known if fnmatch(name, pattern))
        else:
            yield pattern


def _short(reference: str, data: str | None) -> str:
    return reference if data is None else reference.removeprefix(f"{data}-")


def _read(name: str, reference: str, data: str | None, changes: Sequence[str], seeds: Sequence[int]) -> Member:
    return Member(name, {seed: recipes.read(reference, [*changes, f"run.seed={seed}"], data) for seed in seeds})


def _same(members: Sequence[Member]) -> dict[str, str]:
    """Return `{member: the first one that has its very recipe}`."""
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for member in members:
        digest = next(iter(member.recipes.values())).digest
        if digest in first:
            found[member.name] = first[digest]
        first.setdefault(digest, member.name)
    return found


def _check_files(files: Mapping[str, Path], members: Sequence[Member]) -> None:
    known = {part.name for member in members for recipe in member.recipes.values() for part in recipe.part}
    raise_all(
        [f"no part of these recipes is called {name!r}{near(name, known)}" for name in files if name not in known],
        "--file",
    )


def _train(
    members: Sequence[Member], output: Path, files: Mapping[str, Path], missing: dict[str, str]
) -> dict[str, list[tuple[Recipe, Path]]]:
    """Return `{member: (recipe, folder) of each seed}`, trained; what cannot be is entered in `missing`.

    Raises:
        Stopped: If somebody has asked for an end; the same call goes on from there.
        UserError: If the control, which is the first, cannot be trained.
    """
    done: dict[str, list[tuple[Recipe, Path]]] = {}
    for number, member in enumerate(members, start=1):
        control = ", which the others are compared with" if member is members[0] else ""
        show.say(f"training {member.name} ({number} of {len(members)}{control})", stderr=True)
        try:
            done[member.name] = [
                (recipe, _adapter(recipe, output / (member.name if seed == 0 else f"{member.name}-seed{seed}"), files))
                for seed, recipe in member.recipes.items()
            ]
        except UserError as error:
            if member is members[0] or isinstance(error, trainer.Stopped):
                raise
            missing[member.name] = str(error)
            show.warn(f"{member.name} was not run: {error}")
    return done


def _adapter(recipe: Recipe, folder: Path, files: Mapping[str, Path]) -> Path:
    own = {part.name: files[part.name] for part in recipe.used if part.name in files}
    if not finished(recipe, folder, own):
        launching.run(recipe, folder, own)
    return folder


def _runs(
    adapters: Mapping[str, Sequence[tuple[Recipe, Path]]],
    control: Recipe,
    frozen: Sequence[str],
    output: Path,
    tasks: Sequence[str],
    missing: dict[str, str],
) -> list[Runs]:
    """Run everything on every task; a model that cannot be run is entered in `missing`."""
    from obliq_train import ablation_runs

    wanted: dict[str, Callable[[], Runs]] = {
        name: partial(ablation_runs.trained, name, some, tasks, output) for name, some in adapters.items()
    }
    base = ablation_runs.BASE
    wanted[base] = partial(ablation_runs.base, base, control, tasks, output)
    wanted |= {name: partial(ablation_runs.frozen, name, tasks, output) for name in frozen}
    found: list[Runs] = []
    show.say(f"evaluating {', '.join(wanted)} on {', '.join(tasks)}", stderr=True)
    for name, start in show.track(wanted.items(), "evaluation", len(wanted)):
        try:
            found.append(start())
        except UserError as error:
            if not found:
                raise
            missing[name] = str(error)
    return found


def _tasks(control: Recipe) -> tuple[str, ...]:
    """Return what is evaluated: the control's tasks, or else those that its parts train for.

    Raises:
        UserError: If it names none.
    """
    tasks = control.evaluation.tasks or tuple(dict.fromkeys(part.task for part in control.part if part.task))
    if not tasks:
        raise UserError(f"the recipe {control.name} names no task: set evaluation.tasks")
    return tasks


def _frozen(family: Family, control: Recipe) -> tuple[str, ...]:
    teachers = [part.teacher for part in control.used if part.distils and part.teacher] if family.teachers else []
    return tuple(dict.fromkeys([*teachers, *family.frozen]))


def _write(found: Ablation, output: Path) -> None:
    with whole_file(output / f"{found.family}.json") as part:
        part.write_text(json.dumps(found.to_dict(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    with whole_file(output / f"{found.family}.md") as part:
        part.write_text(found.markdown(), "utf-8")
