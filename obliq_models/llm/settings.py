"""Which language model is asked and how: from the environment and a command's options to a client."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from obliq_eval.errors import UserError, near, raise_all
from obliq_models.llm.protocol import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from obliq_models.llm.client import Client
    from obliq_models.llm.prices import Prices
    from obliq_models.llm.protocol import Backend, Message

NAME, PREFIX = "OBLIQ_LLM", "OBLIQ_LLM_"
SERVER = ("OPENAI_BASE_URL", "OPENAI_API_KEY")
BACKENDS = ("openai", "vllm", "transformers")
DEMO = "`obliq demo llm` starts a scripted server to try it with"
ANSWERING = ("model", "backend", "temperature", "max_tokens", "seed", "template", "attempts")
"""What can change an answer; the rest says how fast, how much and whether at all."""


@dataclass(frozen=True)
class LLMSettings:
    """A language model and how it is asked; nothing here is secret.

    Every field but the model can be set as `$OBLIQ_LLM_` and its name in capitals; the model is `$OBLIQ_LLM`.

    Args:
        model: Its name, as the server knows it, or a folder for the backends in this process.
        backend: One of `BACKENDS`.
        temperature: 0 for the likeliest answer.
        max_tokens: The longest answer in tokens, thinking included.
        seed: Seed of the sampling, where the backend has one.
        template: Arguments of the chat template, such as `{"enable_thinking": false}` for Qwen3.
        attempts: How often a question is asked in all while its answers cannot be read.
        concurrency: Calls on their way at once.
        replay: Make no calls.
        limit_calls: The most calls.
        limit_tokens: The most tokens, read and written.
        limit_money: The most money, in the currency of `prices`.
        prices: File with a price table.
    """

    model: str = ""
    backend: str = "openai"
    temperature: float = 0.0
    max_tokens: int = 4096
    seed: int | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 3
    concurrency: int = 32
    replay: bool = False
    limit_calls: int | None = None
    limit_tokens: int | None = None
    limit_money: float | None = None
    prices: Path | None = None

    @classmethod
    def read(cls, **given: Any) -> Self:
        """Return the environment's settings, changed by those that are given and not None.

        Raises:
            UserError: If a value is none of its kind; all at once.
        """
        found: dict[str, Any] = {}
        problems: list[str] = []
        for one in fields(cls):
            variable = NAME if one.name == "model" else PREFIX + one.name.upper()
            text = os.environ.get(variable, "").strip()
            value = given.get(one.name)
            try:
                if value is not None:
                    found[one.name] = _value(one.name, value) if isinstance(value, str) else value
                elif text:
                    found[one.name] = _value(one.name, text)
            except ValueError as error:
                problems.append(f"${variable} is {text!r}: {error}" if value is None else f"{one.name}: {error}")
        settings = cls(**found)
        raise_all([*problems, *settings._problems()], "the language model's settings")
        return settings

    def answering(self) -> dict[str, Any]:
        """Return, as JSON values, what can change an answer, for manifests and revisions."""
        return {name: dict(value) if name == "template" else value for name, value in self._pairs()}

    def with_answering(self, settings: Mapping[str, Any]) -> LLMSettings:
        """Return these settings with what `answering` said elsewhere."""
        return replace(self, **settings)

    def request(
        self,
        messages: tuple[Message, ...],
        schema: Mapping[str, Any] | None,
        *,
        stage: str,
        query: str,
        sample: int = 0,
    ) -> Request:
        """Return a request to this model."""
        return Request(messages, self.model, self.temperature, self.max_tokens, self.seed, schema, sample, stage, query)

    def price_table(self) -> Prices | None:
        """Read the price table, if one is named.

        Raises:
            UserError: If it cannot be read.
        """
        from obliq_models.llm.prices import read_prices

        return None if self.prices is None else read_prices(self.prices)

    def open(self) -> Client:
        """Return a client with the shared cache and the limits; close it, or use it as a context manager.

        Raises:
            UserError: If no model or no server is named, or the price table lacks the model.
            MissingExtraError: If the backend's package is not installed.
        """
        from obliq_models.llm.budget import Budget
        from obliq_models.llm.cache import Cache
        from obliq_models.llm.client import Client

        self.check()
        prices = self.price_table()
        if prices is not None:
            prices.cost(self.model, 0, 0)
        budget = Budget(self.limit_calls, self.limit_tokens, self.limit_money, prices)
        return Client(_backend(self), cache=Cache(), budget=budget, concurrency=self.concurrency, replay=self.replay)

    def check(self) -> None:
        """Make sure that a model is named, and a server where one is needed: a replay asks none.

        Raises:
            UserError: If not; the message shows how to name them.
        """
        model = f"${NAME} (or --llm) names none: set it to the model's name as the server knows it"
        server = f"${SERVER[0]} names no server: set it to its address, http://localhost:8000/v1 for `vllm serve`"
        missing = [] if self.model else [model]
        if self.backend == "openai" and not self.replay and not any(os.environ.get(name) for name in SERVER):
            missing.append(server)
        if missing:
            raise UserError(f"a language model is needed, and {'; '.join(missing)}; {DEMO}")

    def _pairs(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in ANSWERING]

    def _problems(self) -> list[str]:
        found = []
        if self.backend not in BACKENDS:
            hint = near(self.backend, BACKENDS)
            found.append(f"backend is {self.backend!r}, not one of {', '.join(BACKENDS)}{hint}")
        least = {"max_tokens": 1, "attempts": 1, "concurrency": 1, "temperature": 0}
        found += [
            f"{name} is {getattr(self, name)}, and must be at least {low}"
            for name, low in least.items()
            if not getattr(self, name) >= low
        ]
        if self.temperature == math.inf:
            found.append("temperature is inf, and must be a finite number")
        if self.limit_money is not None and self.prices is None:
            found.append("a limit on money needs a price table: --prices FILE")
        return found


def _backend(settings: LLMSettings) -> Backend:
    if settings.backend == "vllm":
        from obliq_models.llm.vllm_backend import VllmBackend

        return VllmBackend(settings.model, template=settings.template)
    if settings.backend == "transformers":
        from obliq_models.llm.transformers_backend import TransformersBackend

        return TransformersBackend(settings.model, template=settings.template)
    from obliq_models.llm.openai_backend import OFFICIAL, OpenAIBackend

    extra = {"chat_template_kwargs": dict(settings.template)} if settings.template else None
    return OpenAIBackend(extra=extra, base_url=OFFICIAL if settings.replay else None)  # a replay calls nobody


def _value(name: str, text: str) -> Any:
    """Return what a text says as a field's value.

    Raises:
        ValueError: If it is none.
    """
    return _KINDS.get(name, str)(text)


def _number(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"not {what}") from None

    return read


def _switch(text: str) -> bool:
    if text.lower() not in {"0", "1", "true", "false", "yes", "no"}:
        raise ValueError("neither 1 nor 0")
    return text.lower() in {"1", "true", "yes"}


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError('not a JSON object such as {"enable_thinking": false}')
    return value


_INTEGER = _number(int, "a whole number")
_FLOAT = _number(float, "a number")
_KINDS: dict[str, Callable[[str], Any]] = {
    "temperature": _FLOAT,
    "limit_money": _FLOAT,
    "max_tokens": _INTEGER,
    "seed": _INTEGER,
    "attempts": _INTEGER,
    "concurrency": _INTEGER,
    "limit_calls": _INTEGER,
    "limit_tokens": _INTEGER,
    "replay": _switch,
    "template": _object,
    "prices": Path,
}
