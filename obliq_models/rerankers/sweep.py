"""Quality by cost: tournaments of TourRank from one run, depths of a listwise call from one run each (app. E, F, G)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from obliq_eval.drawing import (
    COLOURS,
    MUTED,
    heading,
    label_lines,
    legend,
    legible,
    new_figure,
    short,
    styled,
    top_of,
)
from obliq_eval.errors import UserError, raise_all
from obliq_models.rerankers import stage, tournament
from obliq_models.rerankers.steps import RANGES, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from obliq_eval.records import Run
    from obliq_models.rerankers.base import Reranked

KINDS = {"y": "tourrank", "k": "listwise"}


@dataclass(frozen=True)
class Sweep:
    """Values of one parameter: `y` of TourRank, or `k` of a listwise call."""

    key: str
    values: tuple[int, ...]

    def steps(self, base: Step) -> tuple[Step, ...]:
        """Return a step for each value, like the base where that is of the same kind."""
        kind = KINDS[self.key]
        cut = {"document_tokens": base.document_tokens, "tokenizer": base.tokenizer}
        like = base if base.reranker == kind else Step(kind, **cut)  # type: ignore[arg-type]
        one_call = {"stride": 0, "pool": Step.pool}
        changes = ({"y": value} if self.key == "y" else {"k": value, **one_call} for value in self.values)
        return tuple(replace(like, **change) for change in changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Point:
    """One system of a sweep.

    Args:
        step: What reranked; None for the run as it was.
        calls: Calls to a language model, by query.
        quality: `{judgments: NDCG@10}`.
        run_id: The stored run.
    """

    step: Step | None
    calls: float
    quality: Mapping[str, float]
    run_id: str = ""


def parse(text: str) -> Sweep:
    """Return the sweep that `y=1,2,5` or `k=10,20` means.

    Raises:
        UserError: If it is not of this form.
    """
    key, equals, rest = text.partition("=")
    key = key.strip().lower()
    if key not in KINDS or not equals:
        raise UserError(f"--sweep {text!r} is neither y=1,2,5 (tournaments) nor k=10,20,50 (documents of a call)")
    least, most = RANGES[key]
    parts = [part.strip() for part in rest.split(",")]
    wrong = [
        f"{part!r} is no whole number from {least} to {most}" for part in parts if not _is_number(part, least, most)
    ]
    raise_all(wrong, f"--sweep {text}")
    return Sweep(key, tuple(sorted({int(part) for part in parts})))


def at(run: Run, answers: Mapping[str, Reranked], y: int) -> Run:
    """Return the run as its first `y` tournaments order it: what TourRank gives that is asked for so many.

    Args:
        run: The run that was reranked.
        answers: What TourRank returned, with at least `y` tournaments.
        y: How many of them count.
    """
    orders = {}
    for query, answer in answers.items():
        pool = run.rankings[query].documents[: len(answer.ids)]
        place = {document: number for number, document in enumerate(pool)}
        points = [{place[document]: won for document, won in one.items()} for one in answer.points[:y]]
        orders[query] = [pool[number] for number in tournament.order(len(pool), tournament.added(points))]
    return stage.ordered(run, orders)


def failed_at(answers: Mapping[str, Reranked], y: int) -> int:
    """Return how many questions of the first `y` tournaments failed."""
    return sum(sum(answer.failures[:y]) for answer in answers.values())


@styled
def picture(base: Point, lines: Mapping[str, Sequence[Point]], judgments: str, about: str) -> Figure:
    """Draw NDCG@10 by calls per query, one line for each sweep, and the run as it was as a dashed line.

    Args:
        base: The run as it was.
        lines: Points by name of the sweep.
        judgments: Which judgments count.
        about: Task, judgments and number of queries.
    """
    figure = new_figure(8, 4.6)
    axes = figure.add_subplot()
    drawn = {
        name: ([point.calls for point in points], [point.quality[judgments] for point in points])
        for name, points in lines.items()
    }
    level = base.quality[judgments]
    most = max((calls for xs, _ in drawn.values() for calls in xs), default=1)
    axes.set_xlim(-0.08 * most, 1.06 * most)
    label_lines(axes, {short(name): pair for name, pair in drawn.items()})  # type: ignore[misc]
    axes.axhline(level, color=MUTED, linewidth=1.2, linestyle="--", label="without reranking")
    for row, points in enumerate(lines.values()):
        for point in points:
            _mark(axes, point, judgments, legible(COLOURS[row % len(COLOURS)]))
    axes.set_ylim(0, top_of([*drawn.values(), ([0], [level])]))  # type: ignore[list-item]
    axes.set_ylabel("NDCG@10 (mean over queries)")
    axes.set_xlabel("calls to the language model per query")
    legend(axes, 2)
    heading(axes, "What reranking gains, and what it costs", about, lines=1)
    return figure


def _mark(axes: Axes, point: Point, judgments: str, colour: str) -> None:
    """Write the parameter's value beside a point: above for tournaments, to the left for depths of one call."""
    if point.step is None:
        return
    tournaments = point.step.reranker == "tourrank"
    text = f"y={point.step.y}" if tournaments else f"k={point.step.k}"
    place: Any = (
        {"xytext": (0, 8), "ha": "center"} if tournaments else {"xytext": (-8, 0), "ha": "right", "va": "center"}
    )
    axes.annotate(text, (point.calls, point.quality[judgments]), textcoords="offset points", fontsize=8, color=colour,
                  annotation_clip=False, **place)  # fmt: skip


def _is_number(text: str, least: int, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most
