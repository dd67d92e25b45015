"""Rerankers as data: names, tables, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from obliq_eval.errors import UserError
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers.identity import Identity
from obliq_models.rerankers.listwise import Listwise
from obliq_models.rerankers.steps import Step, parse
from obliq_models.rerankers.tourrank import TourRank

NAMES = [
    ("identity", Step()),
    ("tourrank-y5", Step("tourrank")),
    ("tourrank-y1-p200", Step("tourrank", y=1, pool=200)),
    ("listwise-k20", Step("listwise")),
    ("listwise-k50-generic", Step("listwise", k=50, prompt="listwise")),
    ("listwise-k20-strict", Step("listwise", prompt="listwise-writing-strict")),
    ("listwise-k20-s10-p60", Step("listwise", stride=10, pool=60)),
    ("listwise-k20-listwise-math", Step("listwise", prompt="listwise-math")),
]


@pytest.mark.parametrize(("name", "step"), NAMES)
def test_a_name_says_what_a_step_does_and_means_it(name: str, step: Step) -> None:
    assert step.name == name
    assert parse(name) == step
    assert Step.of(step.table()) == step


def test_short_names_and_cross_encoders() -> None:
    assert parse("listwise") == Step("listwise")
    assert parse("tourrank") == Step("tourrank", y=5, pool=100)  # the paper's
    encoder = parse("cross-encoder/ms-marco-MiniLM-L6-v2")
    assert (encoder.reranker, encoder.model) == ("cross-encoder", "cross-encoder/ms-marco-MiniLM-L6-v2")
    assert encoder.name == "ms-marco-MiniLM-L6-v2"
    assert not encoder.needs_llm


def test_what_a_name_does_not_spell_out_gives_it_a_tag() -> None:
    plain, cut, seeded = Step("tourrank"), Step("tourrank", document_tokens=256), Step("tourrank", seed=1)
    assert len({plain.name, cut.name, seeded.name}) == 3
    assert cut.name.startswith("tourrank-y5-")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listwize", "no reranker is called 'listwize'; did you mean \"listwise\""),
        ("tourrank-y999999", "y is 999999, and must be from 1 to 100"),
        ("tourrank-y0", "y is 0, and must be from 1 to 100"),
        ("listwise-k1", "k is 1, and must be from 2 to 1,000"),
        ("listwise-k20-s20", "stride is 20, and must be below k, 20"),
        ("listwise-y3", "y means nothing for listwise"),
        ("tourrank-k3", "k means nothing for tourrank"),
        ("listwise-p50", "pool means nothing for listwise without a stride"),
        ("listwise-unheard", "no prompt is called 'unheard'"),
    ],
)
def test_wrong_names_are_told(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text)
    assert message in str(error.value)


def test_wrong_tables_are_told_all_at_once() -> None:
    table: dict[str, Any] = {"reranker": "tourrank", "y": "5", "pol": 3, "k": 2}
    with pytest.raises(UserError) as error:
        Step.of(table)
    for part in ('pol is not a key of a step; did you mean "pool"', "y is '5', not of type int", "k means nothing"):
        assert part in str(error.value)


def test_a_step_builds_what_it_says() -> None:
    llm = LLMSettings(model="m")
    assert isinstance(Step().build(llm), Identity)
    tourrank = Step("tourrank", y=2, pool=50, seed=3).build(llm)
    assert isinstance(tourrank, TourRank)
    assert (tourrank.y, tourrank.pool, tourrank.seed, tourrank.name) == (
        2,
        50,
        3,
        "tourrank-y2-p50-" + tourrank.name[-6:],
    )
    listwise = Step("listwise", k=30).build(llm)
    assert isinstance(listwise, Listwise)
    assert (listwise.k, listwise.pool, listwise.calls(100)) == (30, 30, 1)
    told = listwise.settings("OBLIQ-Math")
    assert told["prompt"] == "listwise-math"
    assert told["llm"]["model"] == "m"
    assert told["tokens_by"] == "4 characters to a token"
