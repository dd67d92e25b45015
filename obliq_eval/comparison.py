"""Systems against a baseline on one task: means, paired tests, and the queries that differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from obliq_eval import significance
from obliq_eval.analyses.failures import POOL_DEPTH, TIE, Failures, classify
from obliq_eval.comparison_tables import caution, settings
from obliq_eval.errors import UserError, near
from obliq_eval.metrics import DEFAULT_MEASURES
from obliq_eval.reference import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from obliq_eval.metrics import Panel
    from obliq_eval.records import Judgments, Run
    from obliq_eval.reference import Reference, System
    from obliq_eval.significance import PairedTest

MEASURE = "ndcg@10"
POLICIES = {"obliq-ir-full": "obliq-ir+policy", "gpt-query-rewriter": "query-rewriter+gemini-2-embedding"}
"""Names that hide the stages of a pipeline, and the stages (paper, sections 3.3 and 5)."""


@dataclass(frozen=True)
class Contrast:
    """One system against the baseline, under one set of judgments.

    Args:
        system: Its name.
        test: The paired test; the difference is the system's mean less the baseline's.
        adjusted_p: The p-value after Holm's adjustment over the family.
        failures: The queries that it helps, hurts, leaves alone, and that neither of the two answers.
        ranx_p: p-values of ranx's own tests by name, not adjusted.
    """

    system: str
    test: PairedTest
    adjusted_p: float
    failures: Failures
    ranx_p: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """What a comparison says under one set of judgments.

    Args:
        judgments: `gold` or `pooled`.
        panels: `{system: panel}`, the baseline first.
        contrasts: The systems but the baseline; together they are the family of Holm's adjustment.
    """

    judgments: str
    panels: Mapping[str, Panel]
    contrasts: tuple[Contrast, ...]

    @property
    def family(self) -> str:
        """The family of tests, in words."""
        count = len(self.contrasts)
        return f"{count} {'system' if count == 1 else 'systems'} against {next(iter(self.panels))}, {self.judgments}"


@dataclass(frozen=True)
class Comparison:
    """Systems compared on one task.

    Args:
        reference: The judgments and the data.
        systems: The baseline first; their names are distinct.
        parts: One for each set of judgments.
        measure: The measure that is tested.
        warnings: What to know before reading anything into the numbers, one sentence each.
        tie: Largest difference of a query that counts as tied.
    """

    reference: Reference
    systems: tuple[System, ...]
    parts: tuple[Part, ...]
    measure: str
    warnings: tuple[str, ...]
    tie: float = TIE

    @property
    def baseline(self) -> str:
        """Name of the system that the others are compared with."""
        return self.systems[0].name

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, at full precision."""
        return {
            "task": self.reference.name,
            "data_revision": self.reference.revision,
            "queries": self.reference.coverage,
            "measure": self.measure,
            "baseline": self.baseline,
            "systems": [
                {"system": s.name, "run": s.run_id, "depth": s.run.depth, "who": s.manifest and s.manifest.who}
                for s in self.systems
            ],
            "judgments": {part.judgments: _part_dict(part) for part in self.parts},
            "tie": self.tie,
            "warnings": list(self.warnings),
        }


def compare(
    reference: Reference,
    systems: Sequence[System],
    *,
    measure: str = MEASURE,
    resamples: int = significance.RESAMPLES,
    seed: int = 0,
    method: str = significance.DEFAULT_METHOD,
    tests: Sequence[str] = (),
) -> Comparison:
    """Compare systems with the first of them.

    Args:
        reference: What they are judged against.
        systems: At least two, each made to fit the reference (`reference.fit`); the baseline comes first.
        measure: The measure that is tested.
        resamples: How many times the queries are drawn.
        seed: Seed of the draws.
        method: How the interval is made, one of `significance.METHODS`.
        tests: Tests of ranx to show beside the bootstrap, of `significance.RANX_TESTS`.

    Raises:
        UserError: If a setting is out of range, there is only one system, the systems searched different revisions of
            the data, or there is only one query.
    """
    check_settings(resamples, seed, method, tests)
    if len(systems) < 2:
        raise UserError("a comparison needs at least two runs: name a second one")
    _refuse_mixed_revisions(systems)
    systems = distinct(systems)
    measures = tuple(dict.fromkeys((*DEFAULT_MEASURES, measure)))
    panels = {system.name: reference.score(system.run, measures) for system in systems}
    bootstrap = partial(significance.paired_bootstrap, resamples=resamples, seed=seed, method=method)
    parts = []
    for name, judgments in reference.judgments.items():
        own = {system: scored[name] for system, scored in panels.items()}
        parts.append(Part(name, own, _contrasts(systems, own, judgments, measure, bootstrap, tests)))
    small = caution(parts[0].contrasts[0].test.n)
    warnings = [w for s in systems for w in s.warnings] + list(_differences(systems)) + ([small] if small else [])
    return Comparison(reference, systems, tuple(parts), measure, tuple(warnings))


def check_settings(resamples: int, seed: int, method: str, tests: Sequence[str]) -> None:
    """Refuse what `compare` could not do, before anything is read.

    Raises:
        UserError: If a setting is out of range or a test is unknown.
    """
    significance.check_settings(resamples, seed, method=method)
    for test in tests:
        significance.check_ranx_test(test)


def ordered(systems: Sequence[System], baseline: str | None) -> tuple[System, ...]:
    """Return the systems with the baseline first; by default that is the one named first.

    Args:
        systems: The systems.
        baseline: Name, run id or the start of a run id of the baseline.

    Raises:
        UserError: If none of the systems is called that, or more than one begins with it.
    """
    systems = distinct(systems)
    if baseline is None:
        return systems
    exact = [system for system in systems if baseline in {system.name, system.run_id}]
    meant = exact or [system for system in systems if baseline and system.run_id.startswith(baseline)]
    names = [system.name for system in systems]
    if len(meant) > 1:
        raise UserError(
            f"--baseline {baseline!r} begins the run ids of {', '.join(s.run_id for s in meant)}: say which"
        )
    if meant:
        return (meant[0], *(other for other in systems if other is not meant[0]))
    raise UserError(f"--baseline {baseline!r} is none of the systems {', '.join(names)}{near(baseline, names)}")


def stages(system: System) -> tuple[str, ...]:
    """Return the stages of a system, the retriever first, as its name and its manifest tell them."""
    name = POLICIES.get(system.name, system.name)
    settings: Mapping[str, Any] = {}
    if system.manifest is not None:
        model = system.manifest.model
        name, settings = POLICIES.get(model.alias or "", model.alias or model.name), model.settings
    found = tuple(part.strip() for part in name.split("+"))
    if len(found) == 1 and settings.get("reranked"):  # candidates came from an earlier run that is not recorded
        return ("candidates of another run", *found)
    return found


def _contrasts(
    systems: Sequence[System],
    panels: Mapping[str, Panel],
    judgments: Judgments,
    measure: str,
    bootstrap: Callable[[NDArray[np.float64], NDArray[np.float64]], PairedTest],
    tests: Sequence[str],
) -> tuple[Contrast, ...]:
    first, *others = systems
    base = panels[first.name]
    paired = [bootstrap(panels[s.name].values[measure], base.values[measure]) for s in others]
    contrasts = []
    for s, test, adjusted in zip(others, paired, significance.holm([test.p for test in paired]), strict=True):
        own = panels[s.name]
        failures = classify(base, own, _pool(first, s), judgments, measure)
        ranx_p = {one: significance.ranx_test(own.values[measure], base.values[measure], one) for one in tests}
        contrasts.append(Contrast(s.name, test, adjusted, failures, ranx_p))
    return tuple(contrasts)


def _pool(baseline: System, system: System) -> Run:
    """Return the candidates that a system chose from: the baseline's answers if it reranks them, else its own."""
    before, after = stages(baseline), stages(system)
    return baseline.run if len(after) > len(before) and after[: len(before)] == before else system.run


def _refuse_mixed_revisions(systems: Sequence[System]) -> None:
    known = {system.revision: system.name for system in systems if system.revision is not None}
    if len(known) > 1:
        found = ", ".join(f"{name} searched {revision}" for revision, name in known.items())
        raise UserError(
            f"the runs are over different revisions of the data ({found}): run them again over one revision"
        )


def _differences(systems: Sequence[System]) -> Iterator[str]:
    """Yield what else differs between the baseline and the systems than what one would like to compare."""
    first, *others = systems
    for system in others:
        before, after = stages(first), stages(system)
        changed = [
            f"{old or 'none'} → {new or 'none'}"
            for old, new in zip(_padded(before, len(after)), _padded(after, len(before)), strict=True)
            if old != new
        ]
        if len(changed) > 1:
            yield (
                f"{system.name} and {first.name} differ in {len(changed)} stages ({', '.join(changed)}): "
                "the difference cannot be put down to one of them"
            )
    if any(a.run.depth != b.run.depth for a, b in pairwise(systems)):
        depths = ", ".join(f"{s.name} {s.run.depth:,}" for s in systems)
        yield f"the runs differ in depth ({depths}): NDCG@k is comparable for k up to the smallest"
    coverages = {s.name: s.manifest.coverage for s in systems if s.manifest is not None}
    if len(set(coverages.values())) > 1:
        yield f"the runs cover different queries ({', '.join(f'{n} {c}' for n, c in coverages.items())})"


def _padded(found: tuple[str, ...], length: int) -> tuple[str, ...]:
    return found + ("",) * (length - len(found))


def _part_dict(part: Part) -> dict[str, Any]:
    return {
        "n": len(next(iter(part.panels.values())).queries),
        "means": {system: panel.means() for system, panel in part.panels.items()},
        "judged@10": {system: panel.judged_at_10 for system, panel in part.panels.items()},
        "unjudged@10": {system: panel.unjudged_at_10 for system, panel in part.panels.items()},
        "unanswered": {system: list(panel.unanswered) for system, panel in part.panels.items()},
        "family": part.family,
        "pool_depth": POOL_DEPTH,
        "contrasts": [
            {
                "system": c.system, **asdict(c.test), "adjusted_p": c.adjusted_p, **c.failures.counts(),
                "test": settings(c.test), "ranx_p": dict(c.ranx_p),
            }
            for c in part.contrasts
        ],
    }  # fmt: skip
