"""Curves of a training: a file that a resumed run continues, a picture, and TensorBoard's where it is installed."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval.drawing import COLOURS, MUTED, heading, label_lines, new_figure, save, styled
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """What is known after a step.

    Args:
        step: Optimiser steps that are done; 0 for the model as it begins.
        epoch: Passes over the rows that are done.
        seconds: Of training so far, over all sessions of a run that was resumed, evaluation included.
        loss: Mean over the steps since the point before; None for step 0.
        rate: Learning rate of the step.
        grad_norm: Norm of the gradient before it was clipped.
        dev: `{task: NDCG@10 over its dev queries}`, where it was measured.
    """

    step: int
    epoch: float
    seconds: float
    loss: float | None = None
    rate: float | None = None
    grad_norm: float | None = None
    dev: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the point as one line of JSON; what was not measured is left out."""
        return json.dumps({key: value for key, value in vars(self).items() if value not in (None, {})})


def read(path: Path) -> list[Point]:
    """Read a file of curves; what is damaged, or was cut short when a process was killed, is passed over.

    The curves show how a run went, and no weight depends on them: a damaged one should not end it.
    """
    points: list[Point] = []
    for line in path.read_text("utf-8", errors="replace").split("\n") if path.is_file() else []:
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            point = Point(**json.loads(line))
            points += [point] if _whole(point) else []
    return sorted(points, key=lambda point: point.step)


def _whole(point: Point) -> bool:
    optional = [one for one in (point.loss, point.rate, point.grad_norm) if one is not None]
    numbers = (point.epoch, point.seconds, *optional, *point.dev.values())
    return isinstance(point.step, int) and all(isinstance(one, int | float) for one in numbers)


class Curves:
    """Writes points as they come; a context manager.

    Args:
        path: The file. Points after `step` are dropped from it: a resumed run passes those steps again.
        board: Folder of TensorBoard's event files; they are written where `tensorboard` is installed.
        step: The step of the checkpoint that the run goes on from; 0 for none.
    """

    def __init__(self, path: Path, board: Path, step: int = 0) -> None:
        # A run without a checkpoint measures step 0 once more.
        kept = [point for point in read(path) if 0 < step >= point.step]
        self.points = kept
        self._path = path
        self._open = ExitStack()
        with whole_file(path) as part:
            part.write_text("".join(point.to_json() + "\n" for point in kept), "utf-8")
        self._stream = self._open.enter_context(path.open("a", encoding="utf-8"))
        self._board = _board(board, step)
        if self._board is not None:
            self._open.callback(self._board.close)

    @property
    def seconds(self) -> float:
        """Seconds of training up to the last point."""
        return self.points[-1].seconds if self.points else 0.0

    def add(self, point: Point) -> None:
        """Write a point, at once."""
        self.points.append(point)
        self._stream.write(point.to_json() + "\n")
        self._stream.flush()
        if self._board is not None:
            told = {"train/loss": point.loss, "train/rate": point.rate, "train/grad_norm": point.grad_norm}
            told |= {f"dev/{task}/ndcg@10": value for task, value in point.dev.items()}
            for name, value in told.items():
                if value is not None:
                    self._board.add_scalar(name, value, point.step)
            self._board.flush()

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _board(folder: Path, step: int) -> Any:
    """Return TensorBoard's writer, or None where it is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)


def picture(points: Sequence[Point], path: Path, name: str) -> None:
    """Draw loss, learning rate and, where they were measured, dev scores by step.

    Args:
        points: Of the whole run.
        path: SVG or PNG.
        name: What was trained.
    """
    save(draw(points, name), path)


@styled
def draw(points: Sequence[Point], name: str) -> Figure:
    """Return the picture; see `picture`."""
    scored = any(point.dev for point in points)
    figure = new_figure(11.5 if scored else 8.0, 4.2)
    axes = figure.subplots(1, 3 if scored else 2, squeeze=False, width_ratios=[2, 1.3, 2] if scored else [2, 1.3])[0]
    losses = [(point.step, point.loss) for point in points if point.loss is not None]
    _lines(axes[0], losses, COLOURS[0], "training loss")
    heading(axes[0], "Loss", f"{name}, mean over the steps between two points")
    rates = [(point.step, point.rate) for point in points if point.rate is not None]
    _lines(axes[1], rates, COLOURS[1], "learning rate")
    axes[1].yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    heading(axes[1], "Learning rate", "warm-up, then decay")
    if scored:
        _dev(axes[2], points)
    return figure


def _lines(axes: Axes, pairs: Sequence[tuple[int, float]], colour: str, label: str) -> None:
    few = len(pairs) <= 20
    axes.plot([x for x, _ in pairs], [y for _, y in pairs], color=colour, marker="o" if few else None,
              linewidth=1.8 if few else 1.2, clip_on=False)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, max([x for x, _ in pairs], default=1))
    axes.set_xlabel("optimiser steps")
    axes.set_ylabel(label)


def _dev(axes: Axes, points: Sequence[Point]) -> None:
    tasks = list(dict.fromkeys(task for point in points for task in point.dev))
    lines = {
        task.removeprefix("OBLIQ-"): (
            [point.step for point in points if task in point.dev],
            [point.dev[task] for point in points if task in point.dev],
        )
        for task in tasks
    }
    axes.set_xlim(0, max(max(xs) for xs, _ in lines.values()) or 1)
    label_lines(axes, lines)
    for xs, ys in lines.values():
        if xs[0] == 0:
            axes.axhline(ys[0], color=MUTED, linewidth=0.7, linestyle=":")
    axes.set_ylim(0, 1.12 * max([y for _, ys in lines.values() for y in ys] + [1e-3]))
    axes.set_xlabel("optimiser steps")
    axes.set_ylabel("NDCG@10 (mean over dev queries)")
    heading(axes, "Dev queries", "dotted: before training; no test query is asked")
