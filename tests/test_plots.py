"""Pictures: every analysis draws, names are shown as they are, the same input gives the same bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obliq_eval import drawing, plots
from obliq_eval.analyses.cost import Stage
from obliq_eval.analyses.degeneracy import Degeneracy
from obliq_eval.analyses.depth import DepthCurve, Gains
from obliq_eval.analyses.failures import Failures
from obliq_eval.analyses.oracle import Ceiling
from obliq_eval.analyses.purity import Purity, Share
from obliq_eval.analyses.recall import RecallCurve
from obliq_eval.analyses.shuffle import Shuffle
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure

NAME = "x_1 $\\frac{1}{2$ <b>&|"
SHUFFLE = Shuffle(0.3, 0.1, 0.05, 0.15, 3.0, 2.0, None, 0.95, 10, 100, 200, 1000, 0)
NO_RATIO = Shuffle(0.0, 0.0, 0.0, 0.0, None, None, None, 0.95, 10, 100, 200, 1000, 0)
DRAW: dict[str, Callable[[], Figure]] = {
    "recall": lambda: plots.recall({NAME: RecallCurve((10, 100), (0.2, None), 9, 20)}, "T"),
    "depth": lambda: plots.depth(
        {"first": DepthCurve((1, 10), (0.1, 0.2), 2), NAME: DepthCurve((1, 10), (0.1, 0.2), 2)},
        {NAME: Gains("ndcg@10", ("q1", "q2"), (-0.5, 0.25), (-0.5, -0.3, -0.1, 0.1, 0.2))},
        "first",
        "T",
    ),
    "shuffle": lambda: plots.shuffle({NAME: SHUFFLE, "none": NO_RATIO}, "T"),
    "oracle": lambda: plots.oracle({NAME: Ceiling("ndcg@10", 0.2, (100, 1000), (0.5, None), 0.6, 9)}, "T"),
    "failures": lambda: plots.failures(
        {("first", NAME): Failures("ndcg@10", 100, ("q1",), (), ("q2",), ("q3",), ())}, "T"
    ),
    "cost": lambda: plots.cost({NAME: (Stage("dense", 5, 1.0, 0.04), Stage("llm", 5, calls=3))}, "T"),
    "purity": lambda: plots.purity(
        Purity(
            Share(2, 2, 1, 0.5),
            {1: Share(1, 1, 1, 0.25, (0.5, 1.0)), 2: Share(2, 2, 1, 0.5), 3: Share(1, 0, 0, 0.0)},
            None,
            {},
            0,
            4,
            2,
            0,
            0,
            0.95,
            1000,
            0,
        ),
        NAME,
    ),
    "degeneracy": lambda: plots.degeneracy({NAME: Degeneracy(3, 3, (("d", 2), ("e", 1)))}, "T"),
}


def texts(figure: Figure) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text) if isinstance(text, Text))


@pytest.mark.parametrize("name", DRAW)
def test_a_picture_is_well_formed_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    drawing.save(DRAW[name](), first)
    drawing.save(DRAW[name](), second)
    assert first.read_bytes() == second.read_bytes()
    ET.fromstring(first.read_text("utf-8"))  # noqa: S314 -- our own file
    assert b"date" not in first.read_bytes().lower()


@pytest.mark.parametrize("name", DRAW)
def test_a_picture_says_what_it_shows(name: str) -> None:
    figure = DRAW[name]()
    said = texts(figure)
    assert plots.short(NAME, 22) in said or NAME in said  # never read as a formula
    for axes in figure.axes:
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()


def test_png_is_the_same_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "b.PNG"]
    for path in paths:
        drawing.save(DRAW["recall"](), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes().startswith(b"\x89PNG")


def test_the_users_own_style_changes_nothing(tmp_path: Path) -> None:
    import matplotlib as mpl

    drawing.save(DRAW["shuffle"](), tmp_path / "a.svg")
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        drawing.save(DRAW["shuffle"](), tmp_path / "b.svg")
        assert mpl.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.svg or \.png"):
        drawing.check_target(tmp_path / "a.pdf")


@given(st.lists(st.floats(0, 1), max_size=12))
def test_names_are_kept_apart_in_their_order(places: list[float]) -> None:
    moved = drawing.spread(places, 0.1)
    order = sorted(range(len(places)), key=places.__getitem__)
    ordered = [moved[i] for i in order]
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(ordered))
    assert sum(moved) == pytest.approx(sum(places))


def test_names_that_are_far_apart_stay() -> None:
    # .5 and .52 become .46 and .56 around their mean .51; 0 stays
    assert drawing.spread([0.52, 0.0, 0.5], 0.1) == [pytest.approx(0.56), 0.0, pytest.approx(0.46)]


def test_every_colour_is_legible_as_text() -> None:
    # contrast on white by WCAG 2: 1.05 / (luminance + .05); black has 21
    assert drawing.legible("#000000") == "#000000"
    assert drawing.legible("#0072B2") == "#0072B2"  # 5.2 already
    assert drawing.legible("#56B4E9") != "#56B4E9"  # 2.3
