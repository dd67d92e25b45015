"""What the gate rejects, and why."""

from __future__ import annotations

import pytest

from obliq_eval.errors import UserError
from obliq_train.gate import OFF, Caps, judge, parse_caps

SOURCE = "Yesterday in Geneva the delegates quarrelled about tariffs on grain for seven hours."
FINE = "somebody remembers envoys who argued at length over duties"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (FINE, ()),
        ("envoys argued", ("too short",)),
        ("people who argued in Geneva over duties", ("names an entity of its source",)),
        # `about tariffs on grain for` are five words in a row; 2 of 7 content words come back
        ("envoys argued about tariffs on grain for ages and ages, bitterly", ("copies a span of its source",)),
        ("delegates quarrelled yesterday and tariffs won", ("covered by its source", "overlaps with its source")),
        ("word " * 151, ("too long",)),
    ],
)
def test_reasons(query: str, why: tuple[str, ...]) -> None:
    """`won` is too short to count; {delegates, quarrelled, yesterday, tariffs} are all in the source: coverage 1."""
    assert judge(query, SOURCE, Caps()) == why


def test_caps_change_one_by_one() -> None:
    """Of {delegates, envoys, argued, length, duties} one is in the source: coverage 1/5."""
    query = "delegates and envoys argued at length over duties"
    assert judge(query, SOURCE, Caps()) == ()
    assert judge(query, SOURCE, Caps().but({"coverage": 0.2})) == ()
    assert judge(query, SOURCE, Caps().but({"coverage": 0.19})) == ("covered by its source",)
    assert judge("in Geneva", SOURCE, Caps.open()) == ()
    assert Caps.open().settings()["coverage"] is None


def test_options() -> None:
    assert parse_caps(["coverage=0.2", "copied = off"]) == {"coverage": 0.2, "copied": OFF}
    with pytest.raises(UserError, match="not of the form coverage"):
        parse_caps(["coverage"])
    with pytest.raises(UserError, match='coverge is no cap; did you mean "coverage"'):
        Caps().but({"coverge": 1})
    with pytest.raises(UserError, match="not a number of 0 or more"):
        Caps().but({"coverage": float("nan")})
