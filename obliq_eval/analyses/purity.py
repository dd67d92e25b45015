"""Whether a graph's neighbours share an attribute more often than chance (paper, section 6.5 and Appendix I).

Purity is the share of directed edges whose ends have the same label, among those with both ends labelled. The base
rate is the same share among all pairs of labelled documents, counted exactly; the lift is their ratio. Where edges
inside a source were forbidden, pairs inside a source are no part of the base rate either. A nuisance field divides
documents into strata: inside them, each edge is compared with the base rate of its own stratum, so that a lift which
comes from this field alone becomes 1.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from obliq_eval.analyses.groups import base_rate
from obliq_eval.errors import UserError
from obliq_eval.significance import RESAMPLES, check_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from obliq_eval.edges import Edge

    Values = Mapping[str, frozenset[str]]

LARGE = 5.0
"""Lift whose interval must lie above it for "large". The paper names no threshold (its teacher: 25.4); this one is the
project's own."""

CHUNK = 1 << 22  # draws of anchors at a time: 32 MB
COLUMNS = ("edges", "labelled", "same", "purity", "low", "high", "base rate", "lift", "lift low", "lift high")

Verdict = Literal["unknown", "not aligned", "weak", "aligned"]
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Share:
    """How often edges join documents of one label.

    Args:
        edges: How many edges.
        labelled: How many of them have labels at both ends.
        same: How many of these share one.
        expected: How many of these would share one by chance.
        purity_interval: Bootstrap interval of the purity, anchors resampled; None with fewer than two anchors.
        lift_interval: The same of the lift; None also where chance gives none.
    """

    edges: int
    labelled: int
    same: int
    expected: float
    purity_interval: tuple[float, float] | None = None
    lift_interval: tuple[float, float] | None = None

    @property
    def purity(self) -> float | None:
        """The share with the same label; None without labelled edges."""
        return self.same / self.labelled if self.labelled else None

    @property
    def base(self) -> float | None:
        """The share that chance would give; None without labelled edges."""
        return self.expected / self.labelled if self.labelled else None

    @property
    def lift(self) -> float | None:
        """Purity over base rate; None where chance gives none."""
        return self.same / self.expected if self.expected else None

    def row(self) -> list[object]:
        """Return one row under `COLUMNS`."""
        low, high = self.purity_interval or (None, None)
        least, most = self.lift_interval or (None, None)
        return [
            self.edges, self.labelled, self.same, self.purity, low, high, self.base, self.lift, least, most,
        ]  # fmt: skip


@dataclass(frozen=True)
class Purity:
    """A graph against labels.

    Args:
        whole: All edges.
        by_k: `{k: the edges of rank k and below}` for each rank that there is.
        within: Edges whose ends have the same value of the nuisance field, against the base rates of their strata;
            None without such a field.
        strata: `{value: the edges inside it}`, the largest first.
        across: Edges with both ends labelled that are not inside a stratum.
        documents: Labelled documents.
        labels: Different labels.
        outside: Labelled documents that no edge touches.
        inside_source: Edges inside a source, which were left out.
        level: Coverage of the intervals.
        resamples: Resamples of the anchors.
        seed: Seed of the resamples.
    """

    whole: Share
    by_k: Mapping[int, Share]
    within: Share | None
    strata: Mapping[str, Share]
    across: int
    documents: int
    labels: int
    outside: int
    inside_source: int
    level: float
    resamples: int
    seed: int

    @property
    def verdict(self) -> Verdict:
        """Whether the neighbour structure is aligned with the labels, inside strata where there are any."""
        lows = [_low(self.whole), *([] if self.within is None else [_low(self.within)])]
        if any(low is None for low in lows):
            return "unknown"
        least = min(low for low in lows if low is not None)
        if least <= 1:
            return "not aligned"
        return "aligned" if (_low(self.whole) or 0) >= LARGE else "weak"

    def sentence(self, field: str = "", *, audit: str = "") -> str:
        """Return the verdict in words, as section 6.5 has the test.

        Args:
            field: Name of the nuisance field.
            audit: What the labels are, where they are no target but something the graph should not carry.
        """
        whole = self.whole
        if whole.purity is None or whole.base is None:
            return "No edge has labels at both ends, so nothing can be said: label a probe set whose documents are near"
        told = f"{whole.purity:.1%} of the edges join documents of one label, against {whole.base:.1%} of random pairs"
        if whole.lift is not None:
            told += f", a lift of {whole.lift:.1f}\u00d7{_range(whole)}"
        if self.within is not None and self.within.lift is not None:
            told += f"; between documents of one {field or 'stratum'} {self.within.lift:.1f}\u00d7{_range(self.within)}"
            told += f", where {1 / (self.within.base or 1):.1f}\u00d7 would be all of them"
        return f"{told}. {self._audit(audit) if audit else self._advice(field)}"

    def _advice(self, field: str) -> str:
        name = field or "stratum"
        if self.verdict == "unknown":
            return "That is too little to judge the specialist by: label more documents"
        if self.verdict == "not aligned" and (_low(self.whole) or 0) > 1:
            return f"What the graph lifts may be {name} alone, not the attribute: do not distil it"
        if self.verdict == "not aligned":
            return "The specialist's neighbourhoods are not shown to follow the attribute: do not distil them"
        if self.verdict == "weak":
            return (
                f"They follow the attribute, but the lift is not shown to be large ({LARGE:g}\u00d7): train the random "
                "control beside it before relying on it"
            )
        if self.within is not None:
            return (
                f"The specialist's neighbourhoods follow the attribute, inside one {name} as well: distil the "
                f"topology, and train edges matched on {name} beside it as the control"
            )
        return "The specialist's neighbourhoods follow the attribute, and the lift is large: distil the topology"

    def _audit(self, what: str) -> str:
        if self.verdict == "unknown":
            return f"That is too little to say whether the graph carries {what}"
        if self.verdict == "not aligned":
            return f"The graph is not shown to carry {what}; that is no proof that it does not"
        return f"The graph carries {what}, and whatever is distilled from it will too"


def purity(
    edges: Sequence[Edge],
    labels: Values,
    *,
    sources: Values | None = None,
    strata: Values | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Purity:
    """Compare how often edges and random pairs join documents of one label.

    Args:
        edges: The graph, or a dose of it.
        labels: `{document id: labels}`; documents with several agree if they share one.
        sources: `{document id: sources}`, where edges inside a source were forbidden; edges that are there all the
            same are left out and counted.
        strata: `{document id: values}` of a nuisance field. A document with several values, or none, is in no stratum.
        seed: Seed of the bootstrap, 0 or more.
        resamples: Resamples of the anchors.
        level: Coverage of the percentile intervals.

    Raises:
        UserError: If there are no labels, or a setting is out of range.
    """
    check_settings(resamples, seed, level)
    labels = {document: values for document, values in labels.items() if values}
    if not labels:
        raise UserError("there are no labels: a graph's purity needs a labelled probe set, however small")
    held = sources or {}
    kept = [e for e in edges if not held.get(e.anchor, _NONE) & held.get(e.neighbour, _NONE)]
    measure = _Measure(labels, seed, resamples, level)
    base = base_rate(labels, sources) or 0.0
    ranks = sorted({edge.rank for edge in kept})
    within, parts, across = None, dict[str, Share](), 0
    if strata is not None:
        inside = _inside(kept, strata)
        bases = _bases(labels, sources, strata, inside)
        parts = {value: measure.share(some, [bases[value]] * len(some)) for value, some in inside.items()}
        together = [(edge, bases[value]) for value, some in inside.items() for edge in some]
        within = measure.share([edge for edge, _ in together], [rate for _, rate in together])
        across = measure.share(kept, [base] * len(kept), intervals=False).labelled - within.labelled
    touched = {document for edge in edges for document in edge[:2]}
    return Purity(
        whole=measure.share(kept, [base] * len(kept)),
        by_k={k: measure.share(up := [e for e in kept if e.rank <= k], [base] * len(up)) for k in ranks},
        within=within,
        strata=dict(sorted(parts.items(), key=lambda item: (-item[1].labelled, item[0]))),
        across=across,
        documents=len(labels),
        labels=len(frozenset().union(*labels.values())),
        outside=sum(document not in touched for document in labels),
        inside_source=len(edges) - len(kept),
        level=level,
        resamples=resamples,
        seed=seed,
    )


@dataclass(frozen=True)
class _Measure:
    labels: Values
    seed: int
    resamples: int
    level: float

    def share(self, edges: Sequence[Edge], rates: Sequence[float], *, intervals: bool = True) -> Share:
        """Count edges, each beside the rate at which chance would give it one label."""
        sums: dict[str, list[float]] = {}  # by anchor: labelled, same, expected
        for edge, rate in zip(edges, rates, strict=True):
            ends = self.labels.get(edge.anchor), self.labels.get(edge.neighbour)
            if ends[0] and ends[1]:
                own = sums.setdefault(edge.anchor, [0, 0, 0.0])
                own[0] += 1
                own[1] += bool(ends[0] & ends[1])
                own[2] += rate
        table = np.array([sums[anchor] for anchor in sorted(sums)], np.float64).reshape(-1, 3)
        labelled, same, expected = table.sum(axis=0).tolist()
        found = Share(len(edges), int(labelled), int(same), expected)
        if not intervals or len(table) < 2:
            return found
        purity, lift = self._intervals(table)
        return replace(found, purity_interval=purity, lift_interval=lift)

    def _intervals(self, table: NDArray[np.float64]) -> list[tuple[float, float] | None]:
        """Return the percentile intervals of purity and lift: ratios of sums over the same resampled anchors."""
        random, n = np.random.default_rng(self.seed), len(table)
        sums = []
        for first in range(0, self.resamples, size := max(1, CHUNK // n)):
            drawn = random.integers(n, size=(min(size, self.resamples - first), n))
            sums.append(np.stack([column[drawn].sum(axis=1) for column in table.T.copy()]))
        labelled, same, expected = np.concatenate(sums, axis=1)
        return [self._interval(same, labelled), self._interval(same, expected)]

    def _interval(self, above: NDArray[np.float64], below: NDArray[np.float64]) -> tuple[float, float] | None:
        ratios = np.divide(above, below, out=np.full(len(above), np.inf), where=below > 0)
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        low, high = np.quantile(ratios, ends, method="inverted_cdf").tolist()
        return (low, high) if np.isfinite(high) else None


def _inside(edges: Iterable[Edge], strata: Values) -> dict[str, list[Edge]]:
    """Return the edges inside each stratum."""
    found: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        here = strata.get(edge.anchor, _NONE)
        if len(here) == 1 and here == strata.get(edge.neighbour):
            found[next(iter(here))].append(edge)
    return dict(sorted(found.items()))


def _bases(labels: Values, sources: Values | None, strata: Values, wanted: Iterable[str]) -> dict[str, float]:
    members: dict[str, dict[str, frozenset[str]]] = {value: {} for value in wanted}
    for document, values in labels.items():
        here = strata.get(document, _NONE)
        if len(here) == 1 and (value := next(iter(here))) in members:
            members[value][document] = values
    return {value: base_rate(own, sources) or 0.0 for value, own in members.items()}


def _low(share: Share) -> float | None:
    return share.lift_interval[0] if share.lift_interval else None


def _range(share: Share) -> str:
    return "" if share.lift_interval is None else " ({:.1f} to {:.1f})".format(*share.lift_interval)
