"""Curves: a file that goes on where its run does, TensorBoard's events, and a picture."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from obliq_train.curves import Curves, Point, picture, read

if TYPE_CHECKING:
    from pathlib import Path

POINTS = [Point(0, 0.0, 0.0, dev={"toy": 0.25}), *(Point(n, n / 4, 2.0 * n, 1 / n, 1e-3, 2.0) for n in range(1, 7))]


def written(folder: Path, points: list[Point], step: int = 0) -> Curves:
    with Curves(folder / "curves.jsonl", folder / "board", step) as file:
        for point in points:
            file.add(point)
    return file


def events(folder: Path) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "board"))
    found.Reload()
    return [(event.step, round(event.value, 6)) for event in found.Scalars("train/loss")]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written(tmp_path, POINTS)
    assert read(tmp_path / "curves.jsonl") == POINTS
    first = (tmp_path / "curves.jsonl").read_text("utf-8").splitlines()[0]
    assert first == '{"step": 0, "epoch": 0.0, "seconds": 0.0, "dev": {"toy": 0.25}}'


def test_a_resumed_run_goes_on_without_doubled_steps(tmp_path: Path) -> None:
    """Stopped after step 6, and resumed from the checkpoint of step 4: steps 5 and 6 come again, with other times."""
    written(tmp_path, POINTS)
    again = [Point(n, n / 4, 3.0 * n, 1 / n, 1e-3, 2.0) for n in (5, 6)]
    with Curves(tmp_path / "curves.jsonl", tmp_path / "board", 4) as file:
        assert file.seconds == 8.0
        for point in again:
            file.add(point)
    assert read(tmp_path / "curves.jsonl") == [*POINTS[:5], *again] == file.points
    pytest.importorskip("tensorboard", reason="the extra train is not installed")
    assert events(tmp_path) == [(n, round(1 / n, 6)) for n in range(1, 7)]


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    written(tmp_path, POINTS)
    assert written(tmp_path, POINTS[:2]).points == POINTS[:2]
    assert read(tmp_path / "curves.jsonl") == POINTS[:2]


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    """A line that was cut short, of other keys, of other types, no JSON, nor text: no weight depends on a curve."""
    written(tmp_path, POINTS)
    path = tmp_path / "curves.jsonl"
    text = path.read_text("utf-8")
    path.write_text(text[:-10], "utf-8")
    assert read(path) == POINTS[:-1]
    assert '"step": 3, "epoch": 0.75' in text
    for wrong in ('"steps": 3', '"step": "3"', '"step": [3', '"step": 3, "dev": [1]', '"step": 3, "rate": "low"'):
        path.write_text(text.replace('"step": 3, "epoch": 0.75', wrong), "utf-8")
        assert read(path) == [point for point in POINTS if point.step != 3]
    path.write_bytes(b"\0" * 20 + b"\n\xff\xfe\n" + text.encode())
    assert read(path) == POINTS
    with Curves(path, tmp_path / "board", 4) as file:
        assert file.points == POINTS[:5]
    path.unlink()
    assert read(path) == []


def test_without_tensorboard_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    written(tmp_path, POINTS)
    assert not (tmp_path / "board").exists()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("points", [POINTS, POINTS[1:], POINTS[1:2]], ids=["dev", "loss", "one"])
def test_the_picture_is_the_same_each_time(tmp_path: Path, points: list[Point]) -> None:
    for name in ("one.svg", "two.svg"):
        picture(points, tmp_path / name, "a name")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
