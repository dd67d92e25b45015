"""What a reranker is, as data: parsed from names such as `tourrank-y5`, written into policies, built when used."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from obliq_eval.errors import UserError, near, raise_all
from obliq_models import prompts
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.cutting import Cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_models.llm.client import Client
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.prompts import Prompt
    from obliq_models.rerankers.base import Reranker

Kind = Literal["identity", "listwise", "tourrank", "cross-encoder"]
PROMPTS = {"generic": "listwise", "strict": "listwise-writing-strict"}
"""Short names of prompts that are the contrast to the usual one."""
FORMS = "identity, listwise or listwise-k50-generic, tourrank or tourrank-y1, a cross-encoder as organisation/model"

RANGES = {"pool": (1, 100_000), "k": (2, 1000), "y": (1, 100), "stride": (0, 1000), "document_tokens": (1, 1_000_000)}
"""Smallest and largest values; beyond them a slip of the keyboard would cost hours before the first call."""
_NUMBER = re.compile(r"([kyps])([0-9]{1,6})")
_KEYS = {"k": "k", "y": "y", "p": "pool", "s": "stride"}
_MEANT: Mapping[str, frozenset[str]] = {
    "identity": frozenset(),
    "listwise": frozenset({"k", "stride", "pool", "prompt", "document_tokens", "tokenizer"}),
    "tourrank": frozenset({"y", "pool", "seed", "prompt", "document_tokens", "tokenizer"}),
    "cross-encoder": frozenset({"model", "pool"}),
}
"""What may be said of each kind."""


@dataclass(frozen=True)
class Step:
    """One reranker with its parameters; those that mean nothing for its kind keep their defaults.

    Args:
        reranker: Its kind.
        pool: How many first documents may move (listwise: with a stride).
        k: Documents in one call (listwise).
        stride: 0, or how far a window of `k` moves from call to call (listwise).
        y: Tournaments (TourRank).
        seed: Of the order in which documents are shown (TourRank).
        prompt: A prompt's name or TOML file; empty for the usual one (listwise: the one for the task).
        document_tokens: Where documents are cut.
        tokenizer: What counts tokens; empty for four characters to a token.
        model: Full name of a cross-encoder.
    """

    reranker: Kind = "identity"
    pool: int = 100
    k: int = 20
    stride: int = 0
    y: int = 5
    seed: int = 0
    prompt: str = ""
    document_tokens: int = 1024
    tokenizer: str = ""
    model: str = ""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Step:
        """Return the step that a table of a policy describes.

        Raises:
            UserError: If a key is unknown, means nothing for the kind, or a value is out of range; all at once.
        """
        types = {one.name: type(one.default) for one in fields(cls)}
        kind = table.get("reranker")
        problems = [f"{key} is not a key of a step{near(key, types)}" for key in sorted(table.keys() - types)]
        if kind not in get_args(Kind):
            hint = near(kind, get_args(Kind)) if isinstance(kind, str) else ""
            problems.append(f"reranker is {kind!r}, not one of {', '.join(get_args(Kind))}{hint}")
        else:
            idle = table.keys() & types.keys() - _MEANT[str(kind)] - {"reranker"}
            problems += [f"{key} means nothing for {kind}" for key in sorted(idle)]
        if kind == "listwise" and "pool" in table and not table.get("stride"):
            problems.append("pool means nothing for listwise without a stride: k says how many documents are ordered")
        problems += [
            f"{key} is {value!r}, not of type {types[key].__name__}"
            for key, value in table.items()
            if key in types and type(value) is not types[key]
        ]
        raise_all(problems, "the step")
        step = cls(**cast("Any", dict(table)))
        raise_all(step._problems(), "the step")
        return step

    @property
    def name(self) -> str:
        """What it is and does: `tourrank-y5`, `listwise-k20-generic`; `parse` reads it again, but for files."""
        if self.reranker == "identity":
            return "identity"
        parts: list[str] = [re.sub(r"[^\w.]+", "-", self.model.rpartition("/")[2])] if self.model else [self.reranker]
        if self.reranker == "listwise":
            parts.append(f"k{self.k}")
        if self.reranker == "tourrank":
            parts.append(f"y{self.y}")
        if self.stride:
            parts.append(f"s{self.stride}")
        if self.pool != Step.pool:
            parts.append(f"p{self.pool}")
        parts += [part for part in (self._prompt_name(), self._rest()) if part]
        return re.sub(r"_{2,}", "_", "-".join(parts))

    @property
    def needs_llm(self) -> bool:
        """Whether a language model is asked."""
        return self.reranker in {"listwise", "tourrank"}

    def table(self) -> dict[str, Any]:
        """Return the step as a policy's table: what means something, in a fixed order."""
        meant = _MEANT[self.reranker]
        idle = {"pool"} if self.reranker == "listwise" and not self.stride else set()
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name in meant - idle}
        return {"reranker": self.reranker, **{key: value for key, value in found.items() if value != ""}}

    def load_prompt(self) -> Prompt | None:
        """Return the prompt that is named, or None for the usual one.

        Raises:
            UserError: If there is none.
        """
        if not self.prompt:
            return None
        return prompts.read(Path(self.prompt)) if self.prompt.endswith(".toml") else prompts.load(self.prompt)

    def build(self, llm: LLMSettings, client: Client | None = None, device: str | None = None) -> Reranker:
        """Return the reranker.

        Args:
            llm: The language model, where one is asked.
            client: What asks it; None for estimates.
            device: Of a cross-encoder.

        Raises:
            UserError: If its prompt or its model cannot be had.
        """
        if self.reranker == "cross-encoder":
            from obliq_models.rerankers.crossencoder import CrossEncoder, load

            return CrossEncoder(load(self.model, device), self.pool, self.name)
        asking = Asking(llm, client, Cut(self.document_tokens, self.tokenizer))
        if self.reranker == "listwise":
            from obliq_models.rerankers.listwise import Listwise

            pool = self.pool if self.stride else self.k
            return Listwise(asking, self.k, self.stride, pool, self.load_prompt(), self.name)
        if self.reranker == "tourrank":
            from obliq_models.rerankers.tourrank import TourRank

            return TourRank(asking, self.y, self.pool, self.seed, self.load_prompt(), self.name)
        from obliq_models.rerankers.identity import Identity

        return Identity()

    def _at(self, name: str) -> int:
        return int(getattr(self, name))

    def _prompt_name(self) -> str:
        short = {long: name for name, long in PROMPTS.items()}
        if self.reranker != "listwise" or self.prompt not in short:
            return re.sub(r"[^\w.-]+", "-", Path(self.prompt).stem if self.prompt.endswith(".toml") else self.prompt)
        return short[self.prompt]

    def _rest(self) -> str:
        """Return a tag for what the name does not spell out."""
        spelled = (self.seed, self.document_tokens, self.tokenizer)
        if spelled == (Step.seed, Step.document_tokens, Step.tokenizer):
            return ""
        return hashlib.sha256(repr(spelled).encode()).hexdigest()[:6]

    def _problems(self) -> list[str]:
        found = [
            f"{key} is {self._at(key)}, and must be from {low} to {high:,}"
            for key, (low, high) in RANGES.items()
            if not low <= self._at(key) <= high
        ]
        if self.stride >= self.k:
            found.append(f"stride is {self.stride}, and must be below k, {self.k}, so that windows overlap")
        if self.reranker == "cross-encoder" and "/" not in self.model:
            found.append(f"model is {self.model!r}, not organisation/model")
        return found


def parse(text: str) -> Step:
    """Return the step that a name means.

    Args:
        text: Such as `identity`, `tourrank-y5`, `listwise-k50`, `listwise-generic`, `listwise-k20-s10`, or the full
            name of a cross-encoder.

    Raises:
        UserError: If it means none; the message suggests the nearest.
    """
    if "/" in text:
        return Step.of({"reranker": "cross-encoder", "model": text})
    kind, *rest = text.split("-")
    if kind not in {"identity", "listwise", "tourrank"}:
        raise UserError(f"no reranker is called {text!r}{near(text, ('identity', 'listwise', 'tourrank'))}: {FORMS}")
    table: dict[str, Any] = {"reranker": kind}
    words = []
    for part in rest:
        if match := _NUMBER.fullmatch(part):
            table[_KEYS[match[1]]] = int(match[2])
        else:
            words.append(part)
    if words:
        named = "-".join(words)
        table["prompt"] = PROMPTS.get(named, named)
    try:
        step = Step.of(table)
        step.load_prompt()
    except UserError as error:
        raise UserError(f"the reranker {text!r}: {str(error).removeprefix('the step: ')} (known: {FORMS})") from error
    return step
