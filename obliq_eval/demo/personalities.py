"""What the loopback language model plays: judges of several qualities, and servers of several tempers.

A personality is a function from what was asked to an answer. A judge works from the prompt alone, as a model does: it
finds the query and the numbered documents between their tags (`obliq_eval.delimited`), puts the documents into an
order, and answers in the form that the prompt asks for. A temper wraps a personality and spoils some of its answers.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from obliq_eval.delimited import Found, Wanted, find, find_one, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Personality = Callable[["Asked"], "Answer"]
    Order = Callable[[str, Sequence[str], "Asked"], list[int]]

ABSENT = object()
SHORTEST = 40
"""Characters from which on the beginning of a text is taken for the whole: prompts cut long documents."""

MALFORMED = (
    "[3] > [3] > [99]",
    "Of the 20 passages: [2] > [1]",
    "",
    '{"ranking": [3, 1, ',
    "<think>[5] > [4] seems right</think>[3] > [1]",
    "I am sorry, but I cannot rank these 20 passages.",
    "<think>[5] > [4] seems right, but",
    '```json\n{"selection": [1, 1, 1]}\n```',
)
"""What models have answered when a ranking was asked for."""


@dataclass(frozen=True)
class Asked:
    """One request to the server.

    Attributes:
        number: How many requests came before it.
        messages: (role, content) pairs.
        model: The model's name.
        temperature: Temperature; 1 where none was sent.
        max_tokens: The longest answer; a token is a word here.
        seed: Seed, or None.
        response_format: The form that was asked for, as sent.
    """

    number: int
    messages: tuple[tuple[str, str], ...]
    model: str = "judge"
    temperature: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    response_format: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def prompt(self) -> str:
        """All messages, one after the other."""
        return "\n".join(content for _, content in self.messages)

    @cached_property
    def found(self) -> Found | None:
        """The query and documents in the prompt."""
        return find(self.prompt)

    @cached_property
    def wanted(self) -> Wanted | None:
        """What the prompt asks for."""
        return wanted(self.prompt)


@dataclass(frozen=True)
class Answer:
    """What the server does.

    Attributes:
        text: The message's content.
        status: HTTP status; with any but 200 the text is the error's message.
        headers: Further headers.
        finish: Why the answer ends; `length` where it is cut.
        drop: Close the connection without an answer.
        seconds: Wait before answering.
        code: With a status other than 200, the error's code.
        raw: Send this instead of a completion: JSON, or bytes as they are; `ABSENT` for none.
    """

    text: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    finish: str = "stop"
    drop: bool = False
    seconds: float = 0.0
    code: str = ""
    raw: object = ABSENT


@dataclass(frozen=True)
class Judge:
    """A personality that answers with an order of the documents, cut to as many as are wanted.

    Asked for a search query, it repeats the query; asked which documents fit, it names the first of its order.

    Attributes:
        order: From query, documents and the request to positions from 0 on, the best first.
        fitting: From query and documents to how many fit; None for one in four.
    """

    order: Order
    fitting: Callable[[str, Sequence[str]], int] | None = None

    def __call__(self, asked: Asked) -> Answer:
        """Answer in the form that the prompt asks for."""
        if asked.found is None:
            return Answer("I found no query and no documents in this prompt.")
        if asked.wanted is None:
            return self._work(asked.found.query, asked.found.documents, asked)
        best = self.order(asked.found.query, asked.found.documents, asked)
        numbers = [position + 1 for position in best][: asked.wanted.size]
        return Answer(json.dumps({asked.wanted.kind: numbers}))

    def _work(self, query: str, documents: Sequence[str], asked: Asked) -> Answer:
        """Answer an agent: a search query, or which documents fit."""
        if not documents:
            return Answer(json.dumps({"query": query}))
        count = -(-len(documents) // 4) if self.fitting is None else self.fitting(query, documents)
        numbers = [position + 1 for position in self.order(query, documents, asked)[:count]]
        told = f"{count} of {len(documents)} fit"
        return Answer(json.dumps({"selection": numbers, "notes": told, "summary": told}))


def perfect(gold: Mapping[str, Collection[str]]) -> Judge:
    """Return a judge that knows which documents answer a query, and puts them first.

    Texts are compared without regard to white space, and by their beginning where the prompt shows no more of them.

    Args:
        gold: `{query text: texts of the documents that answer it}`.
    """
    known = {_plain(query): [_plain(text) for text in texts] for query, texts in gold.items()}

    def right(query: str, documents: Sequence[str]) -> list[bool]:
        asked = _plain(query)
        texts = known.get(asked) or next((known[text] for text in known if _same(asked, text)), [])
        return [any(_same(_plain(document), text) for text in texts) for document in documents]

    def order(query: str, documents: Sequence[str], _: Asked) -> list[int]:
        fits = right(query, documents)
        return sorted(range(len(documents)), key=lambda at: not fits[at])

    return Judge(order, lambda query, documents: sum(right(query, documents)))


def topical() -> Judge:
    """Return a judge that prefers documents that share words with the query: the fallback that prompts forbid."""

    def order(query: str, documents: Sequence[str], _: Asked) -> list[int]:
        words = _words(query)
        shared = [len(words & _words(document)) / (1 + len(_words(document))) ** 0.5 for document in documents]
        return sorted(range(len(documents)), key=lambda at: -shared[at])

    return Judge(order)


def noisy(base: Judge, share: float, seed: int = 0) -> Judge:
    """Return a judge that answers as another, but puts a share of the documents anywhere.

    The noise follows from the request, whatever the order in which requests arrive.
    """

    def order(query: str, documents: Sequence[str], asked: Asked) -> list[int]:
        best = base.order(query, documents, asked)
        key = json.dumps([seed, asked.seed, asked.prompt])
        chance = random.Random(hashlib.sha256(key.encode()).hexdigest())  # noqa: S311 -- noise, not a secret
        for at in range(len(best)):
            if chance.random() < share:
                other = chance.randrange(len(best))
                best[at], best[other] = best[other], best[at]
        return best

    return Judge(order)


@dataclass(frozen=True)
class Written:
    """What the writer says about one document.

    Attributes:
        description: The answer to Stage A.
        queries: Answers to Stage B; the request's seed chooses one.
    """

    description: str
    queries: Sequence[str]


def writer(known: Mapping[str, Written] | None = None) -> Personality:
    """Return a writer of descriptions and queries (Stages A and B of synthesis).

    A document that it does not know is described by a rule that looks at its form alone, so that no word of it comes
    back; samples are told apart by the request's seed.

    Args:
        known: What it says, by the document's text.
    """
    texts = {_plain(text): written for text, written in (known or {}).items()}

    def play(asked: Asked) -> Answer:
        shown = find_one(asked.prompt)
        forms = re.findall(r'\{"(description|query)": ', asked.prompt)
        if shown is None or not forms:
            return Answer("I found no document in this prompt.")
        document = _plain(shown.document)
        written = texts.get(document) or next((texts[text] for text in texts if _same(document, text)), None)
        if written is None:
            written = _by_rule(shown.document, asked.seed or 0)
        if forms[-1] == "description":
            return Answer(json.dumps({"description": written.description}, ensure_ascii=False))
        query = written.queries[(asked.seed or 0) % len(written.queries)]
        return Answer(json.dumps({"query": query}, ensure_ascii=False))

    return play


def _by_rule(text: str, seed: int) -> Written:
    """Describe a text by the length of its sentences and its punctuation, with a mark that tells queries apart."""
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part] or [""]
    length = round(sum(len(part.split()) for part in sentences) / len(sentences))
    marks = [f"{text.count(mark)} {name}" for mark, name in ((",", "commas"), (";", "semicolons"), ("?", "questions"))]
    mark = hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    form = f"{len(sentences)} of about {length} words each, with {', '.join(marks)}"
    return Written(f"Sentences: {form}.", [f"Something whose sentences number {form}, pattern {mark}"])


def malformed() -> Personality:
    """Return a talker that goes through `MALFORMED`, one after the other."""
    return lambda asked: Answer(MALFORMED[asked.number % len(MALFORMED)])


def slow(base: Personality, seconds: float) -> Personality:
    """Return a personality that takes its time."""
    return lambda asked: replace(base(asked), seconds=seconds)


def rate_limited(base: Personality, every: int = 2, retry_after: str = "1") -> Personality:
    """Return a server that refuses every so many-th request, the first among them, with 429."""
    refusal = Answer("too many requests", 429, {"Retry-After": retry_after})
    return lambda asked: base(asked) if asked.number % every else refusal


def dropping(base: Personality, every: int = 2) -> Personality:
    """Return a server that closes every so many-th connection, the first among them, without an answer."""
    return lambda asked: base(asked) if asked.number % every else Answer(drop=True)


def cutting(base: Personality, every: int = 2) -> Personality:
    """Return a model that reaches its token limit in the middle of every so many-th answer, the first among them."""

    def play(asked: Asked) -> Answer:
        answer = base(asked)
        if asked.number % every:
            return answer
        return replace(answer, text=answer.text[: len(answer.text) // 2], finish="length")

    return play


def _plain(text: str) -> str:
    return " ".join(text.split())


def _same(shown: str, whole: str) -> bool:
    shown = shown.removesuffix("…").rstrip()
    return shown == whole or (len(shown) >= SHORTEST and whole.startswith(shown))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", text.lower()))
