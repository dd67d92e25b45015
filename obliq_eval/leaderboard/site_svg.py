"""What the site's pictures are made of: scales, grids, marks and texts as SVG by classes alone, without colours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from obliq_eval.drawing import short
from obliq_eval.leaderboard.site_tables import plain, scored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from obliq_eval.leaderboard.entries import Entry

WIDE, NARROW = 600, 340
LETTER = 7.2  # pixels of an average letter at the size of labels


@dataclass(frozen=True)
class Scale:
    """A map from values to pixels.

    Args:
        low: Value at the start.
        high: Value at the end.
        start: Pixels.
        end: Pixels.
        log: Equal ratios get equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value, in pixels to one decimal."""
        share = (value - self.low) / (self.high - self.low)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int) -> list[float]:
        """Return round values, at most so many, that cover a scale from 0."""
        steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0]
        step = next((s for s in steps if self.high / s <= most + 1e-9), steps[-1])
        return [round(i * step, 3) for i in range(int(self.high / step + 1e-9) + 1)]


def svg(width: int, height: int, name: str, parts: Iterable[Markup]) -> Markup:
    """Return a picture with a name for those who do not see it."""
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format("narrow" if width == NARROW else "wide", width, height, width, height, name, Markup("\n").join(parts))


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Return a straight line."""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def text(x: float, y: float, words: str, kind: str = "") -> Markup:
    """Return untrusted words on one line; `kind` may be `middle` or `end`, where they are anchored."""
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(kind, x, y, words)


def vertical_grid(x: Scale, top: float, bottom: float, most: int) -> Iterable[Markup]:
    """Yield lines at round values of a horizontal scale, with the values below."""
    for value in x.ticks(most):
        yield line("grid", x(value), top, x(value), bottom)
        yield text(x(value), bottom + 18, f"{value:g}", "middle")


def horizontal_grid(y: Scale, left: float, right: float, most: int) -> Iterable[Markup]:
    """Yield lines at round values of a vertical scale, with the values on the left."""
    for value in y.ticks(most):
        yield line("grid", left, y(value), right, y(value))
        yield text(left - 8, y(value) + 4, f"{value:g}", "end")


def mark(x: float, y: float, entry: Entry, best: bool, about: str = "") -> Markup:
    """Return a system's mark: filled if it was measured, hollow if reported, a diamond for an oracle."""
    kind = ("filled" if scored(entry) == "measured" else "hollow") + (" best" if best else "")
    title = Markup("<title>{}</title>").format(f"{plain(entry.label)}: {about}") if about else Markup("")
    if entry.oracle:
        shape = f"M{x} {round(y - 6, 1)}l6 6l-6 6l-6 -6z"
        return Markup('<path class="mark {}" d="{}">{}</path>').format(kind, shape, title)
    return Markup('<circle class="mark {}" cx="{}" cy="{}" r="4.5">{}</circle>').format(kind, x, y, title)


def fit(words: str, room: float) -> str:
    """Return words cut in the middle where they are longer than so many pixels."""
    return short(words, max(6, int(room / LETTER)))


def inside(places: Sequence[float], low: float, high: float) -> list[float]:
    """Return places moved together so that they lie between the ends, the lower end of the picture last."""
    if not places:
        return []
    shift = min(0.0, high - max(places))
    shift += max(0.0, low - (min(places) + shift))
    return [place + shift for place in places]


def round_top(values: Iterable[float]) -> float:
    """Return the upper end of a scale from 0: a round number that leaves air above the highest value, at most 1."""
    highest = max(values)
    step = 0.05 if highest < 0.5 else 0.1
    return min(1.0, max(step, math.ceil((highest * 1.04) / step - 1e-9) * step))
