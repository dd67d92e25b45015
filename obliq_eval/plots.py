"""The pictures of the analyses, each readable without the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from obliq_eval.drawing import (
    COLOURS,
    MUTED,
    PALE,
    beside,
    depth_axis,
    heading,
    label_lines,
    legend,
    legible,
    look,
    new_figure,
    points,
    rows_frame,
    short,
    stacks,
    styled,
    top_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obliq_eval.analyses.cost import Stage
    from obliq_eval.analyses.degeneracy import Degeneracy
    from obliq_eval.analyses.depth import DepthCurve, Gains
    from obliq_eval.analyses.failures import Failures
    from obliq_eval.analyses.obliqueness import Measures
    from obliq_eval.analyses.oracle import Ceiling
    from obliq_eval.analyses.purity import Purity
    from obliq_eval.analyses.recall import RecallCurve
    from obliq_eval.analyses.shuffle import Shuffle


@styled
def recall(curves: Mapping[str, RecallCurve], about: str) -> Figure:
    """Draw mean Recall@k by k, one line for each system."""
    figure = new_figure(7.5, 4.6)
    axes = figure.add_subplot()
    depths = _known(curves.values())
    lines = [points(curve.depths, curve.values) for curve in curves.values()]
    depth_axis(axes, depths)
    label_lines(axes, dict(zip(map(short, curves), lines, strict=True)))
    axes.set_ylim(0, top_of(lines))
    axes.set_ylabel("Recall@k: share of relevant documents found")
    axes.set_xlabel("k: how many documents are looked at (log scale)")
    heading(axes, "How many relevant documents are within reach", about)
    return figure


@styled
def depth(curves: Mapping[str, DepthCurve], gains: Mapping[str, Gains], baseline: str, about: str) -> Figure:
    """Draw NDCG@k by k and, where there are several systems, each query's gain over the first of them.

    Args:
        curves: One curve for each system, the baseline first.
        gains: Gains over the baseline by the other system's name.
        baseline: Name of the baseline.
        about: Task, judgments and number of queries.
    """
    figure = new_figure(11.5 if gains else 7.5, 4.4)
    left, *right = figure.subplots(1, 2 if gains else 1, squeeze=False)[0]
    depths = _known(curves.values())
    lines = [points(curve.depths, curve.values) for curve in curves.values()]
    depth_axis(left, depths)
    label_lines(left, dict(zip(map(short, curves), lines, strict=True)))
    left.set_ylim(0, top_of(lines))
    left.set_ylabel("NDCG@k (mean over queries)")
    left.set_xlabel("k: how many documents count (log scale)")
    heading(left, "Quality by depth of the ranking", about)
    for axes in right:
        _gains(axes, gains, list(curves))
        heading(axes, f"Gain of each query over {short(baseline)}", "queries sorted by gain; above 0 is better")
    return figure


@styled
def shuffle(results: Mapping[str, Shuffle], about: str) -> Figure:
    """Draw the real NDCG@10 beside the range of the shuffled ones, with the ratio and its interval."""
    figure = new_figure(8.5, 1.9 + 0.5 * len(results))
    axes = figure.add_subplot()
    widest = max((r.real for r in results.values()), default=0.0)
    for row, result in enumerate(results.values()):
        axes.plot([result.lowest, result.highest], [row, row], color="#999999", linewidth=7, solid_capstyle="butt",
                  label="shuffled: lowest to highest" if row == 0 else None)  # fmt: skip
        axes.plot(result.real, row, "o", color=COLOURS[0], markersize=9, label="real order" if row == 0 else None)
        beside(axes, row, _ratio(result))
    rows_frame(axes, list(results))
    axes.set_xlim(0, max(1.1 * widest, 1e-3))
    axes.set_xlabel("NDCG@10 (mean over queries)")
    legend(axes, 2)
    heading(axes, "The system's order against random orders of the same documents", about, lines=1)
    return figure


@styled
def oracle(ceilings: Mapping[str, Ceiling], about: str) -> Figure:
    """Draw what the distance to a perfect ranking is made of."""
    figure = new_figure(8.5, 2.1 + 0.5 * len(ceilings))
    axes = figure.add_subplot()
    pools = max((c.pools for c in ceilings.values()), default=())
    unknown = any(value is None for ceiling in ceilings.values() for value in ceiling.perfect)
    rest = "out of reach, or below the end of the run" if unknown else "not among these documents"
    names = ["reached", *_pool_names(pools), rest]
    colours = [COLOURS[0], *("#56B4E9", "#B3DDF4", "#DCEEF9")[: len(pools)], PALE]
    parts = [[part or 0.0 for part in ceiling.parts] for ceiling in ceilings.values()]
    stacks(axes, parts, names, colours, "{:.3f}", 0.06)
    for row, ceiling in enumerate(ceilings.values()):
        if ceiling.oracle is not None:
            axes.plot(ceiling.oracle, row, "D", color=COLOURS[1], markersize=8, markeredgecolor="white",
                      label="oracle run" if row == 0 else None)  # fmt: skip
    rows_frame(axes, list(ceilings))
    axes.set_xlim(0, 1)
    axes.set_xlabel("NDCG@10 (mean over queries; 1 is a perfect ranking)")
    legend(axes, 2)
    heading(axes, "What a better order could win, and what it could not", about, lines=3)
    return figure


@styled
def failures(found: Mapping[tuple[str, str], Failures], about: str) -> Figure:
    """Draw the share of queries that are helped, hurt, tied, or at zero with both systems."""
    figure = new_figure(9, 2.1 + 0.55 * len(found))
    axes = figure.add_subplot()
    names = [
        "helped", "tied", "hurt", "zero in both, relevant document in the pool",
        "zero in both, none in the pool",
    ]  # fmt: skip
    colours = [COLOURS[2], PALE, COLOURS[1], "#999999", "#444444"]
    parts = [[len(f.helped), len(f.tied), len(f.hurt), len(f.in_pool), len(f.outside_pool)] for f in found.values()]
    stacks(axes, parts, names, colours, "{:,.0f}", 0.025 * max((sum(row) for row in parts), default=1))
    for row, result in enumerate(found.values()):
        beside(axes, row, f"{len(result.helped):,} helped, {len(result.hurt):,} hurt")
    rows_frame(axes, [f"{short(a, 26)}\n→ {short(b, 26)}" for a, b in found], shorten=False)
    axes.set_xlim(0, max((sum(row) for row in parts), default=1))
    axes.set_xlabel("number of queries")
    legend(axes, 3)
    heading(axes, "What changes for each query", about, lines=2)
    return figure


@styled
def cost(costs: Mapping[str, Sequence[Stage]], about: str) -> Figure:
    """Draw the latency of each stage on a log scale: one query alone, and its share of a batch."""
    rows = [(name, stage) for name, stages in costs.items() for stage in stages]
    figure = new_figure(9, 1.9 + 0.55 * len(rows))
    axes = figure.add_subplot()
    times: list[float] = []
    told: set[str] = set()
    for row, (_, stage) in enumerate(rows):
        for seconds, marker, colour, label, above in (
            (stage.single_seconds, "o", COLOURS[0], "one query asked alone (median)", True),
            (stage.each(stage.batch_seconds), "s", COLOURS[5], "share of the batch, all work included", False),
        ):
            if seconds:
                times.append(seconds)
                axes.plot(seconds, row, marker, color=colour, markersize=8, label=None if label in told else label)
                told.add(label)
                axes.annotate(_duration(seconds), (seconds, row), xytext=(0, 6 if above else -6),
                              textcoords="offset points", ha="center", va="bottom" if above else "top",
                              fontsize=8.5)  # fmt: skip
        beside(axes, row, _calls(stage))
    rows_frame(axes, [f"{short(name, 26)}: {short(stage.name, 22)}" for name, stage in rows], shorten=False)
    axes.set_xscale("log")
    if times:
        axes.set_xlim(min(times) / 3, max(times) * 6)
    axes.set_xlabel("time per query (log scale)")
    axes.xaxis.set_major_formatter(lambda value, _: _duration(value))
    legend(axes, 2)
    heading(axes, "What a query costs", about, lines=1)
    return figure


@styled
def degeneracy(found: Mapping[str, Degeneracy], about: str) -> Figure:
    """Draw how many documents it takes to cover the first places of all queries."""
    figure = new_figure(7.5, 4.2)
    axes = figure.add_subplot()
    lines = []
    for result in found.values():
        covered, total = [], 0
        for _, count in result.first:
            total += count
            covered.append(100 * total / result.answered)
        lines.append((list(range(len(covered) + 1)), [0.0, *covered]))
    most = max((result.answered for result in found.values()), default=1)
    axes.set_xlim(0, most)
    axes.set_ylim(0, 104)
    label_lines(axes, dict(zip(map(short, found), lines, strict=True)), markers=False, ends=True)
    axes.plot([0, most], [0, 100], color=MUTED, linewidth=1, linestyle=":")
    axes.annotate("a document of its own\nfor each query", (0.62 * most, 62), xytext=(8, -4),
                  textcoords="offset points", va="top", fontsize=8.5, color=MUTED)  # fmt: skip
    axes.set_ylabel("queries covered (%)")
    axes.set_xlabel("number of different documents in first place, most frequent first")
    heading(axes, "Whether queries share their first document", about)
    return figure


@styled
def obliqueness(found: Mapping[str, Sequence[Measures]], about: str) -> Figure:
    """Draw how three measures of queries against their sources are distributed, one line for each set of queries."""
    figure = new_figure(11.5, 4.2)
    panels = (
        ("coverage", "share of the query's content words in its source"),
        ("jaccard", "Jaccard overlap of content words"),
        ("words", "words of the query"),
    )
    for axes, (name, label) in zip(figure.subplots(1, 3), panels, strict=True):
        for index, (title, measured) in enumerate(found.items()):
            values = sorted(float(getattr(one, name)) for one in measured)
            shares = [(at + 1) / len(values) for at in range(len(values))]
            colour, line, _ = look(index)
            axes.step([0.0, *values], [0.0, *shares], where="post", color=colour, linestyle=line, label=short(title))
        axes.set_xlim(0, 1 if name == "coverage" else None)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(label)
        axes.set_ylabel("share of pairs at or below")
    heading(figure.axes[0], "How much of a query can be read off its source", about)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=3, fontsize=8.5)
    return figure


@styled
def purity(found: Purity, about: str) -> Figure:
    """Draw the share of edges with one label by k, with its interval, above the base rate."""
    figure = new_figure(6.5, 4.2)
    axes = figure.add_subplot()
    known = [(k, share.purity, share) for k, share in found.by_k.items() if share.purity is not None]
    ends = [share.purity_interval or (value, value) for _, value, share in known]
    ks, values = [k for k, _, _ in known], [value for _, value, _ in known]
    below = [value - low for value, (low, _) in zip(values, ends, strict=True)]
    above = [high - value for value, (_, high) in zip(values, ends, strict=True)]
    axes.errorbar(ks, values, yerr=[below, above], marker="o", capsize=3, color=COLOURS[0], label="rank 1 to k")
    if found.whole.base is not None:
        axes.axhline(found.whole.base, color=COLOURS[1], linestyle="--", label="random pairs")
    axes.set_xticks(ks)
    axes.set_ylim(0, 1.05 * max([high for _, high in ends], default=1.0) or 1.0)
    axes.set_xlabel("k: how many neighbours of each document count")
    axes.set_ylabel("share that join documents of one label")
    legend(axes, 2)
    heading(axes, "Purity of the graph by k", about, lines=1)
    return figure


def _known(curves: Iterable[RecallCurve | DepthCurve]) -> list[int]:
    """Return the cut-offs at which some run has a value."""
    known = {k for curve in curves for k, value in zip(curve.depths, curve.values, strict=True) if value is not None}
    return sorted(known) or [1]


def _gains(axes: Axes, gains: Mapping[str, Gains], systems: Sequence[str]) -> None:
    """Draw each system's gains, sorted, over the share of the queries; systems keep their colour of the other panel."""
    for row, (name, gain) in enumerate(gains.items()):
        colour, line, _ = look(systems.index(name))
        n = len(gain.gains)
        xs = [100 * i / n for i in range(n + 1)]
        ys = [*gain.gains, gain.gains[-1]]
        axes.plot(xs, ys, drawstyle="steps-post", color=colour, linestyle=line)
        if len(gains) == 1:
            axes.fill_between(xs, ys, step="post", color=colour, alpha=0.2, linewidth=0)
        equal = n - gain.better - gain.worse
        counts = f"{gain.better:,} better, {gain.worse:,} worse, {equal:,} equal"
        text = f"{short(name, 24)}: {counts}; mean {_signed(gain.mean)}"
        axes.annotate(text, (0.03, 0.97 - 0.065 * row), xycoords="axes fraction", va="top", fontsize=8.5,
                      color=legible(colour))  # fmt: skip
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.set_xlim(0, 100)
    axes.set_ylim(-1.05, 1.05 + 0.17 * len(gains))  # room for the words above the highest gain
    axes.set_yticks([-1, -0.5, 0, 0.5, 1])
    axes.set_xlabel("queries (%)")
    axes.set_ylabel("gain in NDCG@10")


def _signed(value: float) -> str:
    """Return a number with its sign, a true minus among them."""
    return f"{value:+.3f}".replace("-", "\u2212")


def _pool_names(pools: Sequence[int]) -> list[str]:
    names = [f"won by a perfect order of the first {k:,}" for k in pools[:1]]
    return names + [f"more by one of the first {k:,}" for k in pools[1:]]


def _ratio(result: Shuffle) -> str:
    if result.ratio is None:
        return "no relevant document in the pool"
    low, high = ("∞" if end is None else f"{end:.1f}" for end in (result.low, result.high))
    return f"{result.ratio:.1f} times chance [{low}, {high}]"


def _duration(seconds: float) -> str:
    """Return a duration in the unit that reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _calls(stage: Stage) -> str:
    """Return calls and tokens per query in words; nothing where nothing is known."""
    words = []
    if stage.calls is not None:
        words.append(f"{stage.each(stage.calls):,.4g} calls")
    if stage.prompt_tokens is not None or stage.completion_tokens is not None:
        tokens = (stage.prompt_tokens or 0) + (stage.completion_tokens or 0)
        words.append(f"{stage.each(tokens):,.0f} tokens")
    return ", ".join(words)
