"""What requests will cost, without making a call."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from decimal import Decimal

    from obliq_models.llm.prices import Prices
    from obliq_models.llm.protocol import Request

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of one token, the usual rule of thumb for English prose; a guess for anything else."""

PER_MESSAGE = 16  # tokens that a chat template puts around a message, generously
PER_REQUEST = 32  # and around them all
GUESSED, COUNTED = f"guessed: {BYTES_PER_TOKEN} bytes to a token", "counted by the model's tokenizer"


@dataclass(frozen=True)
class Estimate:
    """What is to be expected.

    Args:
        calls: Calls to be made.
        stored: Answers that are stored already and cost nothing.
        prompt_tokens: Tokens to be read, as `method` has them.
        completion_tokens: Tokens to be written: at most, or as the caller expects.
        method: How prompt tokens were found, in words.
        seconds: Wall-clock time at the given rate; None if none was given.
        money: In the price table's currency; None without one.
        prices: Currency and date of the price table; empty without one.
    """

    calls: int
    stored: int
    prompt_tokens: int
    completion_tokens: int
    method: str
    seconds: float | None = None
    money: Decimal | None = None
    prices: str = ""


def estimate(
    requests: Iterable[Request],
    *,
    stored: Callable[[Request], bool] = lambda _: False,
    count: Callable[[str], int] | None = None,
    completion_tokens: int | None = None,
    calls_per_second: float | None = None,
    prices: Prices | None = None,
) -> Estimate:
    """Return what requests will cost, retries and answers that do not parse left out.

    Args:
        requests: The requests, or such as are like them in number and length; read once.
        stored: Whether a request's answer is stored already (`Client.stored`).
        count: Tokens of a text, by the model's tokenizer; without it they are guessed from the length.
        completion_tokens: Expected tokens of one answer; without it every answer is taken to be as long as allowed.
        calls_per_second: Rate of the server with as many calls at once as are made.
        prices: Price table.

    Raises:
        UserError: If the price table lacks a model.
    """
    calls = kept = prompt = completion = 0
    money = None if prices is None else prices.cost(next(iter(prices.models)), 0, 0)
    for request in requests:
        if stored(request):
            kept += 1
            continue
        read = prompt_tokens(request, count)
        written = request.max_tokens if completion_tokens is None else min(completion_tokens, request.max_tokens)
        calls, prompt, completion = calls + 1, prompt + read, completion + written
        if prices is not None and money is not None:
            money += prices.cost(request.model, read, written)
    seconds = calls / calls_per_second if calls_per_second else None
    method = GUESSED if count is None else COUNTED
    return Estimate(calls, kept, prompt, completion, method, seconds, money, "" if prices is None else str(prices))


def prompt_tokens(request: Request, count: Callable[[str], int] | None = None) -> int:
    """Return the tokens of a prompt, chat template left out: counted, or guessed from its length."""
    return sum((count or likely_tokens)(content) for _, content in request.messages)


def likely_tokens(text: str) -> int:
    """Return a guess at the tokens of a text, without a tokenizer."""
    return math.ceil(_bytes(text) / BYTES_PER_TOKEN)


def most_prompt_tokens(request: Request) -> int:
    """Return a number of tokens that no prompt passes: a token holds at least one byte.

    The schema counts, since some servers put it into the prompt, and so does an allowance for the chat template.
    """
    texts = sum(_bytes(role) + _bytes(content) + PER_MESSAGE for role, content in request.messages)
    return texts + PER_REQUEST + (0 if request.schema is None else len(json.dumps(dict(request.schema))))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
