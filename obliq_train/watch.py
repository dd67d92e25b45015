"""What goes on beside the steps of a training: points of the curves, dev scores, a bar, and an orderly stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from obliq_eval import show
from obliq_train.curves import Curves, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Scores = Callable[[], dict[str, float]]


class Asked:
    """Whether somebody has asked for an end.

    Args:
        signal: The signal's number; 0 as long as there was none.
    """

    def __init__(self) -> None:
        self.signal = 0


@contextmanager
def asked_to_stop() -> Iterator[Asked]:
    """Note Ctrl-C and SIGTERM in place of ending at once; the second of them ends at once."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield asked
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, _: object) -> None:
        asked.signal = number
        for known, handler in before.items():
            signal.signal(known, handler)

    for number in before:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watch(TrainerCallback):
    """Called by the trainer around its steps.

    Args:
        asked: Whether somebody has asked for an end.
        agree: Returns the largest of all processes' numbers, so that they stop after the same step.
        curves: Where points go; None in every process but the first.
        scores: Returns dev scores; called in every process. None if nothing is measured.
        every: Steps between two measurements; 0 for the end alone.
        bar: Called after each step with its number and, where it is known, the loss.
    """

    def __init__(
        self,
        asked: Asked,
        agree: Callable[[int], int],
        curves: Curves | None,
        scores: Scores | None,
        every: int,
        bar: Callable[[int, float | None], None],
    ) -> None:
        self.asked, self.agree, self.curves, self.every, self.bar = asked, agree, curves, every, bar
        self.scores = scores
        self._dev: dict[str, float] = {}
        self._begun = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 -- as the trainer calls it
        """Measure the model as it begins; one that goes on saves and logs as it is told now, not as it was then."""
        state.save_steps, state.logging_steps = args.save_steps, args.logging_steps
        self._begun = time.monotonic() - (self.curves.seconds if self.curves is not None else 0.0)
        if self.scores is not None and state.global_step == 0:
            self._dev = self.scores()
            self._add(state, {})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 -- as the trainer calls it
        """Measure where it is time, and stop where it was asked for."""
        self.bar(state.global_step, None)
        last = state.global_step >= state.max_steps
        due = last or (self.every and state.global_step % self.every == 0)
        if self.scores is not None and due:
            self._dev = self.scores()
        if last or self._dev:
            control.should_log = True
        number = self.agree(self.asked.signal)
        if number and not last:
            self.asked.signal = number
            control.should_training_stop = control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
        """Write a point."""
        if logs is not None and "loss" in logs:
            self.bar(state.global_step, logs["loss"])
            self._add(state, logs)

    def _add(self, state: Any, logs: dict[str, Any]) -> None:
        point = Point(
            step=state.global_step,
            epoch=round(float(state.epoch or 0.0), 6),
            seconds=round(time.monotonic() - self._begun, 3),
            loss=logs.get("loss"),
            rate=logs.get("learning_rate"),
            grad_norm=logs.get("grad_norm"),
            dev=self._dev,
        )
        self._dev = {}
        if self.curves is not None:
            self.curves.add(point)


@contextmanager
def progress(steps: int, done: int, *, shown: bool) -> Iterator[Callable[[int, float | None], None]]:
    """Yield what is to be called after each step; silent unless standard error is a terminal.

    Args:
        steps: Steps in all.
        done: Steps that an earlier session has made.
        shown: Whether a bar is wanted at all.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda _step, _loss: None
        return
    with show.progress("Training", "steps{task.fields[told]}") as bar:
        task = bar.add_task("training", total=steps, completed=done, told="")

        def moved(step: int, loss: float | None) -> None:
            bar.update(task, completed=step)
            if loss is not None:
                bar.update(task, told=f", loss {loss:.3f}")

        yield moved


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries from reporting what the user has not asked for; errors are told."""
    from transformers.utils import logging as untyped

    told: Any = untyped

    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    names = ("accelerate", "sentence_transformers", "torch.distributed")
    before = {name: logging.getLogger(name).level for name in names}
    told.set_verbosity_error()
    told.disable_progress_bar()
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", message=r".*pin_memory.*")
            yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()
        for name, number in before.items():
            logging.getLogger(name).setLevel(number)
