"""The site's pictures: inline SVG by classes alone, so that the style sheet colours it for light, dark and paper.

Each picture is drawn twice, for wide and for narrow windows, since letters in a shrunken picture cannot be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from obliq_eval.drawing import spread
from obliq_eval.leaderboard.site_svg import (
    NARROW,
    WIDE,
    Scale,
    fit,
    horizontal_grid,
    inside,
    line,
    mark,
    round_top,
    svg,
    text,
    vertical_grid,
)
from obliq_eval.leaderboard.site_tables import plain, scored
from obliq_eval.metrics import parse_measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obliq_eval.leaderboard.entries import Board, Cost, Entry, Figure

LINES = 12
"""Lines and labels at most in one picture; what is left out is named below it."""
COLOURS = 7


@dataclass(frozen=True)
class Picture:
    """A picture.

    Args:
        wide: For windows with room.
        narrow: For phones.
        left_out: Labels of the systems that it does not show; untrusted text.
    """

    wide: Markup
    narrow: Markup
    left_out: tuple[str, ...] = ()


def _twice(draw: Callable[[int], Markup], left_out: tuple[str, ...]) -> Picture:
    return Picture(draw(WIDE), draw(NARROW), left_out)


def intervals(board: Board) -> Picture | None:
    """Return NDCG@10 of every system, with the interval where it was measured; None where no number is known."""
    known = [(entry, entry.main) for entry in board.entries if entry.main is not None]
    if not known:
        return None
    top = round_top(max(f.value, f.high or 0) for _, f in known)
    left_out = tuple(plain(entry.label) for entry in board.entries if entry.main is None)

    def draw(width: int) -> Markup:
        return _intervals(board, known, width, Scale(0, top, 218 if width == WIDE else 8, width - 58))

    return _twice(draw, left_out)


def pareto(board: Board) -> Picture | None:
    """Return NDCG@10 against seconds for one query; None where no cost is known."""
    known = [(e, e.main, e.cost) for e in board.entries if e.main is not None and e.cost and e.cost.seconds > 0]
    if not known:
        return None
    shown = [entry for entry, *_ in known]
    left_out = tuple(plain(e.label) for e in board.entries if not any(e is other for other in shown))
    return _twice(lambda width: _pareto(board, known, width), left_out)


def recall(board: Board) -> Picture | None:
    """Return Recall@k under gold judgments against k, of systems with at least two known values."""
    cuts = sorted(k for name, k in map(parse_measure, board.measures) if name == "recall")
    lines = []
    for entry in board.entries:
        figures = [(k, entry.figure("gold", f"recall@{k}")) for k in cuts]
        points = [(k, figure.value) for k, figure in figures if figure is not None]
        if len(points) > 1:
            lines.append((entry, points))
    lines = sorted(lines, key=lambda found: scored(found[0]) != "measured")[:LINES]
    if not lines:
        return None
    shown = [entry for entry, _ in lines]
    left_out = tuple(plain(e.label) for e in board.entries if not any(e is other for other in shown))
    return _twice(lambda width: _recall(board, lines, cuts, width), left_out)


def strip(board: Board) -> Markup:
    """Return all systems' NDCG@10 as marks on one line from 0 to 1, at any width."""
    best = board.best
    marks = [
        Markup('<svg x="{}%" y="13" class="at">{}</svg>').format(
            f"{100 * e.main.value:.2f}", mark(0, 0, e, any(e is other for other in best))
        )
        for e in reversed(board.entries)
        if e.main is not None
    ]
    name = f"NDCG@10 of {len(marks)} systems on {board.title}, from 0 to 1"
    return Markup(
        '<svg class="strip" height="26" role="img" aria-label="{}"><line class="track" x1="0" x2="100%" y1="13" '
        'y2="13"/>{}</svg>'
    ).format(name, Markup("").join(marks))


def _intervals(board: Board, known: Sequence[tuple[Entry, Figure]], width: int, x: Scale) -> Markup:
    narrow = width == NARROW
    row, best = (40, 10) if narrow else (27, 8), board.best
    height = len(known) * row[0] + 34
    parts = list(vertical_grid(x, 2, height - 30, 4 if narrow else 6))
    for number, (entry, figure) in enumerate(known):
        y = number * row[0] + (28 if narrow else 15)
        label = plain(entry.label)
        chosen = any(entry is other for other in best)
        about = f"{label}: {figure.text}" + (f", {figure.low:.4f} to {figure.high:.4f}" if _has(figure) else "")
        parts.append(Markup('<g class="{}"><title>{}</title>').format("best" if chosen else "", about))
        name_at = (0, y - 12) if narrow else (0, y + 4)
        parts += [text(*name_at, fit(label, 300 if narrow else 210)), line("track", x.start, y, x.end, y)]
        if figure.low is not None and figure.high is not None:
            ends = (x(figure.low), x(figure.high))
            parts.append(line("interval", ends[0], y, ends[1], y))
            parts += [line("interval", end, y - 4, end, y + 4) for end in ends]
        parts += [mark(x(figure.value), y, entry, chosen), text(width, y + 4, figure.text, "end number")]
        parts.append(Markup("</g>"))
    return svg(width, height, f"NDCG@10 of {len(known)} systems on {board.title}; the table holds the numbers", parts)


def _pareto(board: Board, known: Sequence[tuple[Entry, Figure, Cost]], width: int) -> Markup:
    height = 330
    decades = (
        math.floor(math.log10(min(c.seconds for *_, c in known)) + 1e-9),
        math.ceil(math.log10(max(c.seconds_high for *_, c in known)) - 1e-9),
    )
    first, last = decades[0], max(decades[1], decades[0] + 1)
    x = Scale(10.0**first, 10.0**last, 44, width - 12, log=True)
    y = Scale(0, round_top(f.value for _, f, _ in known), height - 46, 14)
    parts = [*horizontal_grid(y, x.start, x.end, 6)]
    for power in range(first, last + 1):
        place = x(10.0**power)
        parts += [
            line("grid", place, y.end, place, y.start),
            text(place, y.start + 18, f"{10.0**power:g}", _anchor(power, first, last)),
        ]
    parts.append(text((x.start + x.end) / 2, height - 8, "seconds for one query, log scale", "middle soft"))
    edge = _frontier(known)
    if edge:
        places = [(x(cost.seconds_high), y(figure.value)) for _, figure, cost in edge]
        path = f"M{places[0][0]} {places[0][1]}" + "".join(f"H{a}V{b}" for a, b in places[1:]) + f"H{x.end}"
        parts.append(Markup('<path class="frontier" d="{}"/>').format(path))
    parts += _costs_marked(board, known, x, y)
    fronts = [entry for entry, *_ in edge]
    for above in (True, False):
        points = [
            (entry.label, _place(figure, cost, x, y))
            for entry, figure, cost in known
            if any(entry is front for front in fronts) == above and (above or len(known) <= LINES)
        ]
        parts += _labels_beside(points, x, y, -8 if above else 17)
    return svg(width, height, f"NDCG@10 against seconds for one query on {board.title}", parts)


def _costs_marked(board: Board, known: Sequence[tuple[Entry, Figure, Cost]], x: Scale, y: Scale) -> Iterator[Markup]:
    best = board.best
    for entry, figure, cost in known:
        a, b = _place(figure, cost, x, y)
        if cost.seconds_high > cost.seconds:
            yield line("interval", x(cost.seconds), b, x(cost.seconds_high), b)
        yield mark(a, b, entry, any(entry is other for other in best), figure.text)


def _place(figure: Figure, cost: Cost, x: Scale, y: Scale) -> tuple[float, float]:
    """Return where a system stands; a range of times is marked at its middle on the log scale."""
    return x(math.sqrt(cost.seconds * cost.seconds_high)), y(figure.value)


def _labels_beside(
    points: Sequence[tuple[str, tuple[float, float]]], x: Scale, y: Scale, drop: int
) -> Iterator[Markup]:
    """Yield names beside their points, on the side with more room; names of one point share a line.

    Args:
        points: Labels with the places of their points.
        x: The horizontal scale.
        y: The vertical scale.
        drop: How far below its point the base line of a name should be, in pixels.
    """
    groups: dict[tuple[float, float], list[str]] = {}
    for label, place in points:
        groups.setdefault(place, []).append(plain(label))
    for left in (True, False):
        side = [(p, names) for p, names in groups.items() if (p[0] > (x.start + x.end) / 2) == left]
        heights = inside(spread([p[1] + drop for p, _ in side], 15), y.end + 4, y.start - 6)
        for ((a, b), names), height in zip(side, heights, strict=True):
            room = (a - x.start if left else x.end - a) - 10
            if abs(height - drop - b) > 4:
                yield line("leader", a, b, a + (-7 if left else 7), round(height - 4, 1))
            words = fit(" · ".join(names), room)
            yield text(round(a + (-9 if left else 9), 1), round(height, 1), words, "end halo" if left else "halo")


def _frontier(known: Sequence[tuple[Entry, Figure, Cost]]) -> list[tuple[Entry, Figure, Cost]]:
    """Return the systems, oracles left out, than which none is both as cheap and better, from the cheapest on."""
    edge: list[tuple[Entry, Figure, Cost]] = []
    fair = [point for point in known if not point[0].oracle]
    for point in sorted(fair, key=lambda p: (p[2].seconds_high, -p[1].value)):
        if not edge or point[1].value > edge[-1][1].value:
            edge.append(point)
    return edge


def _recall(
    board: Board, lines: Sequence[tuple[Entry, list[tuple[int, float]]]], cuts: Sequence[int], width: int
) -> Markup:
    names = 216 if width == WIDE else 132
    height = max(320, 60 + 16 * len(lines))
    x = Scale(cuts[0], cuts[-1], 44, width - names, log=True)
    y = Scale(0, round_top(value for _, points in lines for _, value in points), height - 46, 14)
    parts = [*horizontal_grid(y, x.start, x.end, 6)]
    for k in cuts:
        parts += [line("grid", x(k), y.end, x(k), y.start), text(x(k), y.start + 18, f"{k:,}", "middle")]
    parts.append(text((x.start + x.end) / 2, height - 8, "k, log scale", "middle soft"))
    ends = [(x(points[-1][0]), y(points[-1][1])) for _, points in lines]
    heights = inside(spread([b for _, b in ends], 15), y.end, y.start)
    for number, ((entry, points), (a, b), place) in enumerate(zip(lines, ends, heights, strict=True)):
        style = f"c{number % COLOURS}" + (" second" if number >= COLOURS else "")
        shape = " ".join(f"{x(k)},{y(value)}" for k, value in points)
        label = plain(entry.label)
        about = f"{label}: " + ", ".join(f"{value:.3f} at {k:,}" for k, value in points)
        kind = "filled" if scored(entry) == "measured" else "hollow"
        marks = [Markup('<circle cx="{}" cy="{}" r="3.2"/>').format(x(k), y(v)) for k, v in points]
        parts += [
            Markup('<g class="curve {} {}"><title>{}</title>').format(style, kind, about),
            line("leader", a + 5, b, x.end + 13, round(place, 1)),
            Markup('<polyline points="{}"/>').format(shape),
            *marks,
            text(x.end + 17, round(place + 4, 1), fit(label, names - 18)),
            Markup("</g>"),
        ]
    return svg(width, height, f"Recall at k of {len(lines)} systems on {board.title}", parts)


def _anchor(power: int, first: int, last: int) -> str:
    return "" if power == first else "end" if power == last else "middle"


def _has(figure: Figure) -> bool:
    return figure.low is not None and figure.high is not None
