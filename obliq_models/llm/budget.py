"""A limit on calls, tokens and money that is never passed, however many calls are on their way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError
from obliq_models.llm.estimate import most_prompt_tokens

if TYPE_CHECKING:
    from obliq_models.llm.prices import Prices
    from obliq_models.llm.protocol import Request, Response

KEPT = "what was answered is kept: raise the limit and run it again to go on from there"


class BudgetExceeded(UserError):  # noqa: N818 -- reads as what happened
    """The next call could pass a limit."""


@dataclass(frozen=True)
class Cost:
    """What calls use up: their number, tokens read and written, and money in the price table's currency."""

    calls: int = 0
    tokens: int = 0
    money: Decimal = Decimal(0)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.calls + other.calls, self.tokens + other.tokens, self.money + other.money)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.calls - other.calls, self.tokens - other.tokens, self.money - other.money)


class Budget:
    """Counts what calls use up, and stops before a limit is passed.

    Before each call its worst case is set aside (`most_prompt_tokens`, and an answer of `max_tokens`); when it has
    been answered, what it used counts instead. Where the worst case does not fit, calls on their way are waited for,
    so where a run stops does not depend on how many are made at once. Stored answers cost nothing, so a run that goes
    on after a stop needs a budget for the rest alone.

    Args:
        calls: The most calls, repeated ones included.
        tokens: The most tokens, read and written.
        money: The most money, in the currency of `prices`.
        prices: Price table; needed for a limit on money.

    Raises:
        UserError: If money is limited without prices, or a limit is below 0.
    """

    def __init__(
        self,
        calls: int | None = None,
        tokens: int | None = None,
        money: Decimal | float | None = None,
        prices: Prices | None = None,
    ) -> None:
        if money is not None and prices is None:
            raise UserError("a limit on money needs a price table (TOML: currency, date, prices by model)")
        self.calls, self.tokens, self.prices = calls, tokens, prices
        self.money = None if money is None else Decimal(str(money))
        for name, value in (("calls", calls), ("tokens", tokens), ("money", self.money)):
            if value is not None and not value >= 0:
                raise UserError(f"a limit on {name} must be 0 or more, not {value}")
        self.spent = Cost()
        self.beyond = 0
        """Calls that used more than their worst case, since a server kept to no limit."""
        self._held = Cost()
        self._settled: asyncio.Event | None = None

    async def reserve(self, request: Request) -> Cost:
        """Set a call's worst case aside and return it; give it back to `settle`.

        Raises:
            BudgetExceeded: If the worst case passes a limit even when all calls on their way have been answered.
        """
        worst = self.worst(request)
        while limit := self._passed(self.spent + self._held + worst):
            if self._held == Cost():
                raise BudgetExceeded(
                    f"the budget of {limit} could be passed by the next call ({request.told()}); {KEPT}"
                )
            if self._settled is None or self._settled.is_set():
                self._settled = asyncio.Event()
            await self._settled.wait()
        self._held += worst
        return worst

    def settle(self, request: Request, worst: Cost, response: Response | None, *, spent: bool = False) -> None:
        """Count what a call used, and set free the rest of what was set aside for it.

        Args:
            request: What was asked.
            worst: What `reserve` returned.
            response: The answer, or None if there was none.
            spent: Without an answer: the model may have worked, so that the worst case counts.
        """
        self._held -= worst
        if response is not None:
            used = self._cost(request.model, response.prompt_tokens, response.completion_tokens)
            self.beyond += used.tokens > worst.tokens
        else:
            used = worst if spent else Cost(calls=1)
        self.spent += used
        if self._settled is not None:
            self._settled.set()

    def worst(self, request: Request) -> Cost:
        """Return the most that one call can use up."""
        return self._cost(request.model, most_prompt_tokens(request), request.max_tokens)

    def _cost(self, model: str, prompt: int, completion: int) -> Cost:
        money = Decimal(0) if self.prices is None else self.prices.cost(model, prompt, completion)
        return Cost(1, prompt + completion, money)

    def _passed(self, total: Cost) -> str:
        """Return the limit that a total passes, in words, or an empty string."""
        if self.calls is not None and total.calls > self.calls:
            return f"{self.calls:,} calls"
        if self.tokens is not None and total.tokens > self.tokens:
            return f"{self.tokens:,} tokens"
        if self.money is not None and self.prices is not None and total.money > self.money:
            return f"{self.money} {self.prices.currency}"
        return ""
