"""Stored runs against the paper's figures: measured, reported, difference, tolerance, and what may explain it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from obliq_eval import runs
from obliq_eval.catalogue import catalogue
from obliq_eval.data import sources
from obliq_eval.data.official import OFFICIAL, REVISION
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.evaluation import panels
from obliq_eval.leaderboard.explanations import explain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from obliq_eval.leaderboard.paper import Reported
    from obliq_eval.manifest import Manifest, Model
    from obliq_eval.runs import StoredRun

Verdict = Literal["within", "differs", "unknown", "other hardware"]
Key = tuple[str, str, str, str]
"""The paper's system, the model, the task, and who ran it."""

SPREAD = {"OBLIQ-Writing": 0.00015, "OBLIQ-Congress": 0.00056}
"""How far NDCG@10 of the reference checkpoint moves between GPU generations, by its model card; 0 elsewhere."""
EXACT = ("OBLIQ-Math", "OBLIQ-Twitter")
"""Tasks on which the reference checkpoint's rankings repeat bit for bit on identical hardware, by its model card."""
REFERENCE = "obliq-ir"
REFERENCE_MACHINE = "H100"
SUMMATION = 1e-12
"""Two orders of adding the same numbers differ by less."""
ORDER_DEPTH = 100
NAMES = {
    "DataScience-UIBK/OBLIQ-IR-3B-LoRA": "obliq-ir",
    "DataScience-UIBK/OBLIQ-IR-3B": "obliq-ir-merged",
    "Qwen/Qwen3-Embedding-0.6B": "qwen3-embed-0.6b",
    "Qwen/Qwen3-Embedding-4B": "qwen3-embed-4b",
    "lightonai/LateOn": "lateon",
    "google/gemini-embedding-2": "gemini-2-embedding",
    "google/gemini-embedding-2-preview": "gemini-2-embedding",
}
"""The paper's systems under the names that mteb and the hub know them by."""


@dataclass(frozen=True)
class Check:
    """One figure of the paper against one stored run.

    Args:
        system: The paper's name of the system.
        model: The stored run's model, by alias if it has one.
        task: The task.
        judgments: `gold` or `pooled`.
        measure: `ndcg@10` and so on.
        reported: The figure.
        measured: The run's mean at full precision; None if the run is too shallow to know it.
        tolerance: Half a unit of the figure's last decimal, and the spread that the model card states.
        where: Where the figure stands.
        run: The stored run.
    """

    system: str
    model: str
    task: str
    judgments: str
    measure: str
    reported: float
    measured: float | None
    tolerance: float
    where: str
    run: str

    @property
    def difference(self) -> float | None:
        """Measured minus reported."""
        return None if self.measured is None else self.measured - self.reported

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is within the tolerance."""
        if self.difference is None:
            return "unknown"
        return "within" if abs(self.difference) <= self.tolerance else "differs"


@dataclass(frozen=True)
class OrderCheck:
    """The first 100 documents of a stored run against those of the authors' own run.

    Args:
        task: The task.
        model: The stored run's model.
        run: The stored run.
        reference: The authors' run, as imported.
        found: The comparison.
        machine: The stored run's machine.
    """

    task: str
    model: str
    run: str
    reference: str
    found: runs.RunDiff
    machine: str

    @property
    def verdict(self) -> Verdict:
        """Whether every order is the same; another machine than the paper's may change it."""
        found = self.found
        if found.same_order == found.common and not found.only_a and not found.only_b:
            return "within"
        return "differs" if REFERENCE_MACHINE in self.machine else "other hardware"


@dataclass(frozen=True)
class Verification:
    """What came out.

    Args:
        checks: One for each figure of each run.
        orders: One for each run whose order can be compared.
        explanations: `{run: sentences}` for the runs that differ.
        left_out: One sentence for each run of one of the paper's systems that cannot be compared.
        hints: What else could be verified, and how.
    """

    checks: tuple[Check, ...] = ()
    orders: tuple[OrderCheck, ...] = ()
    explanations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything is outside its tolerance."""
        return "differs" in {*(check.verdict for check in self.checks), *(order.verdict for order in self.orders)}


def verify(
    figures: Sequence[Reported], stored: Iterable[StoredRun], systems: Collection[str] = (), tasks: Collection[str] = ()
) -> Verification:
    """Compare the newest run of each model and task with the paper's figures.

    Args:
        figures: The paper's figures.
        stored: Stored runs, newest first.
        systems: Names of the paper's systems, aliases or full names of models; by default all.
        tasks: Official tasks; by default all.

    Raises:
        UserError: If a system or task is unknown.
    """
    known = dict.fromkeys(figure.system for figure in figures)
    made = [(one, one.manifest) for one in stored if one.manifest is not None]
    _check_names(systems, tasks, {*known, *_names(made)})
    checks: list[Check] = []
    left_out: list[str] = []
    chosen: dict[Key, StoredRun] = {}
    for one, manifest in made:
        system = paper_system(manifest.model, known)
        if system is None or manifest.task not in OFFICIAL or not _wanted(manifest, system, systems, tasks):
            continue
        key = (system, manifest.model.name, manifest.task, manifest.who)
        if key in chosen:
            continue
        try:
            checks += _checks([f for f in figures if (f.system, f.task) == (system, manifest.task)], one, manifest)
            chosen[key] = one
        except UserError as error:
            left_out.append(f"{one.name}: {error}")
    orders, hints = _orders(chosen)
    return Verification(tuple(checks), orders, _explanations(checks, orders, chosen), tuple(left_out), hints)


def paper_system(model: Model, known: Collection[str]) -> str | None:
    """Return the row of the paper's tables that a model repeats, or None.

    It is told by the table of models, by the alias, or by the name that mteb and the hub know it by.
    """
    entry = next((e for e in catalogue().values() if model.name == e.name), None)
    last = model.name.rpartition("/")[2]
    names = (entry.paper_row if entry else None, model.alias, NAMES.get(model.name), last, last.lower())
    return next((name for name in names if name is not None and name in known), None)


def tolerance(system: str, task: str, measure: str, decimals: int) -> float:
    """Return how far a repetition may be from a reported figure.

    Half a unit of the last printed decimal, since the printed number may stand for any number that rounds to it; and
    for NDCG@10 of the reference checkpoint the spread between machines that its model card states.
    """
    spread = SPREAD.get(task, 0.0) if system == REFERENCE and measure == "ndcg@10" else 0.0
    return 0.5 * 10.0**-decimals + spread + SUMMATION


def verifiable(figures: Iterable[Reported]) -> list[tuple[str, str, int, str | None]]:
    """Return (system, task, number of figures, alias of a model that repeats it) for every row of the paper."""
    alias: dict[str, str] = {}
    for entry in catalogue().values():
        alias.setdefault(entry.paper_row or entry.alias, entry.alias)
    for name, system in NAMES.items():
        if not name.startswith("DataScience-UIBK/"):  # mteb knows no prefixes and lengths for these
            alias.setdefault(system, name)
    counted = Counter((figure.system, figure.task) for figure in figures)
    return [(system, task, number, alias.get(system)) for (system, task), number in counted.items()]


def _names(made: Iterable[tuple[StoredRun, Manifest]]) -> set[str]:
    """Return every name that a stored run's model, or a model that can be run, goes by."""
    models = [(entry.name, entry.alias) for entry in catalogue().values()]
    models += [(manifest.model.name, manifest.model.alias or "") for _, manifest in made]
    return {name for pair in models for name in pair if name}


def _check_names(systems: Collection[str], tasks: Collection[str], known: Collection[str]) -> None:
    problems = [
        f'no system "{name}" in the paper or the run store{near(name, known)}' for name in systems if name not in known
    ]
    problems += [f'"{task}" is no official task{near(task, OFFICIAL)}' for task in tasks if task not in OFFICIAL]
    raise_all(problems, "verify-paper")


def _wanted(manifest: Manifest, system: str, systems: Collection[str], tasks: Collection[str]) -> bool:
    names = {system, manifest.model.name, manifest.model.alias}
    return (not systems or bool(names & set(systems))) and (not tasks or manifest.task in tasks)


def _checks(figures: Sequence[Reported], one: StoredRun, manifest: Manifest) -> list[Check]:
    """Compare one run.

    Raises:
        UserError: If it cannot be compared, and why.
    """
    if not figures:
        raise UserError("the paper states no figure for this system on this task")
    if manifest.data.revision is None:
        raise UserError("it does not say which data it searched: import it again with --data-revision")
    if manifest.data.revision != REVISION:
        raise UserError(f"it searched data revision {manifest.data.revision[:12]}; the figures are of {REVISION[:12]}")
    if manifest.coverage != "all":
        raise UserError(f"it covers the {manifest.coverage} queries only; the figures are over all")
    scores = _scores(one, manifest)
    return [
        Check(
            f.system, _short(manifest.model), f.task, f.judgments, f.measure, f.value,
            scores.get(f.judgments, {}).get(f.measure), tolerance(f.system, f.task, f.measure, f.decimals),
            f"{f.source}, {f.where}", one.name,
        )
        for f in figures
    ]  # fmt: skip


def _short(model: Model) -> str:
    return model.alias or model.name


def _scores(one: StoredRun, manifest: Manifest) -> Mapping[str, Mapping[str, float]]:
    """Return the means that the store keeps, or score the run now, without the documents that each query excludes."""
    if manifest.scores:
        return manifest.scores
    data, run = sources.load(manifest.task), one.read()
    scored = panels(run.without(data.exclusions, run.depth), data)
    return {name: panel.known() for name, panel in scored.items()}


def _orders(chosen: Mapping[Key, StoredRun]) -> tuple[tuple[OrderCheck, ...], tuple[str, ...]]:
    made, hints = [], []
    own = {task: one for (system, _, task, who), one in chosen.items() if (system, who) == (REFERENCE, "paper")}
    for (system, _, task, who), one in chosen.items():
        if system != REFERENCE or who == "paper" or task not in EXACT or one.manifest is None:
            continue
        if task not in own:
            hints.append(f"the top-{ORDER_DEPTH} orders of {one.name} can be compared after `obliq import-authors`")
            continue
        found = runs.diff(one.read(), own[task].read(), ORDER_DEPTH)
        model = _short(one.manifest.model)
        made.append(OrderCheck(task, model, one.name, own[task].name, found, one.manifest.hardware))
    return tuple(made), tuple(hints)


def _explanations(
    checks: Iterable[Check], orders: Iterable[OrderCheck], chosen: Mapping[Key, StoredRun]
) -> dict[str, tuple[str, ...]]:
    worst = {order.run: 0.0 for order in orders if order.verdict != "within"}
    for check in checks:
        if check.verdict == "differs" and check.difference is not None:
            worst[check.run] = max(worst.get(check.run, 0.0), abs(check.difference))
    return {
        one.name: explain(one.manifest, system, worst[one.name])
        for (system, *_), one in chosen.items()
        if one.name in worst and one.manifest is not None
    }
