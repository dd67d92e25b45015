"""No limit is ever passed, whatever is asked at once; prices are the user's own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_models.llm.budget import Budget, BudgetExceeded, Cost
from obliq_models.llm.client import Client
from obliq_models.llm.estimate import estimate, likely_tokens, most_prompt_tokens
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.prices import Prices, read_prices
from obliq_models.llm.protocol import CallError, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PRICES = Prices("EUR", date(2026, 11, 30), {"judge": (Decimal(2), Decimal(10))})
TABLE = 'currency = "EUR"\ndate = 2026-11-30\n[models."judge"]\ninput = 2\noutput = 10.5\n'


def test_a_call_costs_what_it_used(ask: Callable[..., Request]) -> None:
    """300 tokens read at 2 and 100 written at 10 for a million: 0.0006 + 0.001 = 0.0016."""
    budget = Budget(prices=PRICES)
    with Client(FakeBackend(lambda _: Response("x", "stop", 300, 100)), budget=budget) as client:
        client.run(client.ask(ask()))
    assert budget.spent == Cost(1, 400, Decimal("0.0016"))


def test_the_worst_case_is_set_aside(ask: Callable[..., Request]) -> None:
    """`user` and `hello`, 9 bytes, with 16 for the message and 32 for the template: 57; and 43 to be written."""
    request = ask(max_tokens=43)
    assert most_prompt_tokens(request) == 57
    assert Budget(prices=PRICES).worst(request) == Cost(1, 100, Decimal("0.000544"))
    limits = {"99 tokens": Budget(tokens=99), r"0\.000543 EUR": Budget(money=0.000543, prices=PRICES)}
    for told, budget in limits.items():
        with Client(FakeBackend(lambda _: "x"), budget=budget) as client, pytest.raises(BudgetExceeded, match=told):
            client.run(client.ask(request))


def test_what_is_on_its_way_is_waited_for(ask: Callable[..., Request]) -> None:
    """Two worst cases of 100 do not fit into 150 at once, but the first uses 12, so that both can be asked."""

    async def play(_: Request) -> Response:
        await asyncio.sleep(0.01)
        return Response("x", "stop", 10, 2)

    budget = Budget(tokens=150)
    with Client(FakeBackend(play), budget=budget) as client:
        client.run(client.ask_all([ask("hello", max_tokens=43), ask("world", max_tokens=43)]))
    assert budget.spent.tokens == 24


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.booleans()), max_size=15),
    st.integers(0, 600),
    st.integers(1, 8),
)
@settings(max_examples=40, deadline=None)
def test_no_limit_is_passed(calls: list[tuple[int, int, bool]], limit: int, concurrency: int) -> None:
    """Calls that use all or part of what they may, or break off, in any number at once."""

    async def play(request: Request) -> Response:
        used, most, breaks = calls[int(request.query)]
        await asyncio.sleep(0)
        if breaks:
            raise CallError("broken off", spent=True)
        return Response("x", "stop", most_prompt_tokens(request), min(used, most))

    budget = Budget(tokens=limit)
    wanted = [
        Request((("user", f"{number}"),), "judge", max_tokens=most, query=f"{number}")
        for number, (_, most, _) in enumerate(calls)
    ]
    with Client(FakeBackend(play), budget=budget, concurrency=concurrency) as client:
        with suppress(BudgetExceeded, CallError):
            client.run(client.ask_all(wanted))
        assert budget.spent.tokens <= limit
        assert budget._held == Cost()


def test_every_attempt_is_a_call(ask: Callable[..., Request]) -> None:
    """Refused, broken off, answered: three calls, of which the second counts at its worst, 100 tokens."""
    script = [CallError("busy", retriable=True), CallError("gone", retriable=True, spent=True), None]

    def play(_: Request) -> Response:
        if error := script.pop(0):
            raise error
        return Response("x", "stop", 10, 2)

    async def at_once(_: float) -> None:
        pass

    budget = Budget()
    with Client(FakeBackend(play), budget=budget, sleep=at_once) as client:
        client.run(client.ask(ask(max_tokens=43)))
    assert budget.spent == Cost(3, 112)


def test_a_server_that_keeps_to_no_limit_is_counted(ask: Callable[..., Request]) -> None:
    budget = Budget(tokens=200)
    with Client(FakeBackend(lambda _: Response("x", "stop", 10, 500)), budget=budget) as client:
        client.run(client.ask(ask(max_tokens=43)))
        assert client.counts["language model: calls beyond their token limit"] == 1
        with pytest.raises(BudgetExceeded):
            client.run(client.ask(ask("again", max_tokens=43)))


def test_money_needs_prices() -> None:
    with pytest.raises(UserError, match="price table"):
        Budget(money=1)
    with pytest.raises(UserError, match="0 or more"):
        Budget(calls=-1)


def test_a_model_without_a_price_is_named() -> None:
    with pytest.raises(UserError, match="no price for the model 'juge'; did you mean \"judge\""):
        PRICES.cost("juge", 1, 1)


def test_price_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(TABLE)
    prices = read_prices(path)
    assert prices.cost("judge", 1_000_000, 1_000_000) == Decimal("12.5")
    assert str(prices) == "EUR, prices of 2026-11-30"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "3 problems"),
        (TABLE.replace("date = 2026-11-30", ""), "date is missing"),
        (TABLE.replace("= 2\n", "= -2\n"), "input must be a number from 0 on"),
        (TABLE.replace("= 2\n", "= true\n"), "input must be a number from 0 on"),
        (TABLE.replace("= 2\n", "= nan\n"), "input must be a number from 0 on"),
        (TABLE.replace("output", "ouput"), "needs input and output"),
        (TABLE.replace("currency", "curency"), "2 problems"),
        ("= =", "is not a TOML file"),
    ],
)
def test_faults_of_price_tables_are_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        read_prices(path)


def test_a_missing_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_prices(tmp_path / "none.toml")


def test_estimates(ask: Callable[..., Request]) -> None:
    """Three requests of 8 bytes, so 2 tokens each, one of them stored; answers of 10: (4 at 2 and 20 at 10) / 1e6."""
    wanted = [ask(text, max_tokens=100) for text in ("aaaabbbb", "ccccdddd", "eeeeffff")]
    found = estimate(
        wanted,
        stored=lambda request: request is wanted[0],
        completion_tokens=10,
        calls_per_second=0.5,
        prices=PRICES,
    )
    assert (found.calls, found.stored, found.prompt_tokens, found.completion_tokens) == (2, 1, 4, 20)
    assert (found.seconds, found.money, found.prices) == (4.0, Decimal("0.000208"), "EUR, prices of 2026-11-30")
    assert found.method == "guessed: 4 bytes to a token"
    counted = estimate(wanted, count=len)
    assert (counted.prompt_tokens, counted.completion_tokens, counted.money) == (24, 300, None)
    assert counted.method == "counted by the model's tokenizer"


def test_guesses_at_tokens() -> None:
    """Bytes, not characters: a character of three bytes is most of a token."""
    assert [likely_tokens(text) for text in ("", "a", "abcde", "日本語文")] == [0, 1, 2, 3]
