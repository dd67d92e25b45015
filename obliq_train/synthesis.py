"""Synthetic queries: Stage A describes a document's latent attribute, Stage B writes a query from both.

Documents stream through: a bounded number is on its way, answers arrive in any order, and rows come out in the order of
the documents. What was answered is in the language model's cache, so a run that was killed asks for the rest alone and
ends with the same bytes as one that was not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from obliq_eval.analyses.obliqueness import plain
from obliq_eval.delimited import delimit_one
from obliq_models.llm.answers import read_object
from obliq_models.llm.client import Failure
from obliq_models.rerankers.cutting import Cut
from obliq_train.gate import REPEATED, Caps, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request
    from obliq_models.llm.settings import LLMSettings
    from obliq_train.lenses import Lens
    from obliq_train.sampling import Sampled

DESCRIBE, QUERY = "describe", "query"
"""Stages A and B, as the ledger names them."""
AHEAD = 4  # documents on their way for each call at once: a slow one at the head then holds nobody up
UNREADABLE = "queries without a readable answer"
REPAIRS = ("cut", "unparsed", "unfit")
FILLER = "a description of the usual length, in words that say nothing about anything in particular " * 4


@dataclass(frozen=True)
class Plan:
    """How queries are written.

    Args:
        lens: The latent attribute and the prompts.
        llm: The language model.
        caps: What the gate lets through.
        per_document: Queries for each document.
        tries: How many samples of a query are asked for while the gate rejects them.
        task: What the rows say the task is.
        cut: How long documents are cut for the prompts; the gate sees them whole.
    """

    lens: Lens
    llm: LLMSettings
    caps: Caps = field(default_factory=Caps)
    per_document: int = 1
    tries: int = 3
    task: str = ""
    cut: Cut = field(default_factory=lambda: Cut(2048))

    def settings(self) -> dict[str, Any]:
        """Return, as JSON values, whatever of this can change a row."""
        stages = {DESCRIBE: self.lens.describe, QUERY: self.lens.query}
        return {
            "lens": self.lens.name,
            "mechanism": self.lens.mechanism,
            "prompt": self.lens.prompt,
            "stages": {name: prompt.revision for name, prompt in stages.items() if prompt is not None},
            "llm": self.llm.answering(),
            "caps": self.caps.settings(),
            "per_document": self.per_document,
            "tries": self.tries,
            "task": self.task,
            **self.cut.settings(),
        }

    def describe(self, document: Sampled) -> Request | None:
        """Return the question of Stage A, or None for a lens without one."""
        prompt = self.lens.describe
        if prompt is None:
            return None
        messages = prompt.messages(material=delimit_one(self.cut(document.text)))
        return self.llm.request(messages, prompt.schema, stage=DESCRIBE, query="")

    def query(self, document: Sampled, description: str, sample: int) -> Request:
        """Return the question of Stage B; retries take the samples that follow, so samples are `llm.attempts` apart."""
        prompt = self.lens.query
        messages = prompt.messages(material=delimit_one(self.cut(document.text), description))
        return self.llm.request(messages, prompt.schema, stage=QUERY, query="", sample=sample * self.llm.attempts)

    def requests(self, documents: Iterable[Sampled], stored: Callable[[Request], str | None]) -> Iterator[Request]:
        """Yield the questions for documents if every first answer passes, for an estimate.

        Args:
            documents: The documents.
            stored: The text of a request's stored answer, or None.
        """
        for document in documents:
            first = self.describe(document)
            description = ""
            if first is not None:
                yield first
                kept = stored(first)
                description = (kept and read_text(kept, "description")) or FILLER
            for slot in range(self.per_document):
                yield self.query(document, description, slot * self.tries)


@dataclass(frozen=True)
class Draft:
    """One query, or why there is none.

    Args:
        slot: Which of the document's queries it is.
        query: Its text; None if every sample was rejected or could not be read.
        sample: The sample that it is, or the last that was asked for.
        rejected: Reasons of the samples before it, one for each reason of each sample.
    """

    slot: int
    query: str | None
    sample: int
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drafted:
    """What was written for one document.

    Args:
        document: The document.
        description: Stage A's answer; None if it could not be read, empty for a lens without that stage.
        drafts: The queries.
    """

    document: Sampled
    description: str | None
    drafts: tuple[Draft, ...] = ()


def read_text(answer: str, key: str) -> str | None:
    """Return the text under a key of the JSON object in an answer, LaTeX kept, or None if it has none.

    White space becomes single blanks: a query is one line. A text with half of a surrogate pair is none.
    """
    found = read_object(answer, key)
    value = None if found is None else found[key]
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        return None
    return " ".join(value.split()) or None


class Synthesis:
    """Writes the rows of documents.

    Args:
        plan: How.
        client: What asks the language model; None where others have asked (`finish`).
    """

    def __init__(self, plan: Plan, client: Client | None) -> None:
        self.plan, self._client = plan, client
        self.counts: Counter[str] = Counter()
        self._written: set[bytes] = set()

    @property
    def client(self) -> Client:
        """What asks the language model.

        Raises:
            ValueError: If nothing does.
        """
        if self._client is None:
            raise ValueError("nobody to ask: this only finishes what others have drafted")
        return self._client

    @property
    def failures(self) -> float:
        """Share of the queries asked for that were not written, whatever the reason."""
        asked = self.counts["documents"] * self.plan.per_document
        return 1 - self.counts["queries"] / asked if asked else 0.0

    def rows(self, documents: Iterable[Sampled]) -> Iterator[dict[str, Any]]:
        """Yield one row for each query that was written, in the order of the documents.

        Raises:
            UserError: If the model cannot be reached, a limit is passed, or a replay lacks an answer.
        """
        for drafted in self.drafts(documents):
            yield from self.finish(drafted)

    def drafts(self, documents: Iterable[Sampled]) -> Iterator[Drafted]:
        """Yield what is written for each document, in their order, before repetitions are looked for."""
        yield from ordered(self.client, documents, self._draft_all, AHEAD * self.plan.llm.concurrency)

    def all_counts(self) -> dict[str, int]:
        """Return what was asked, written, rejected and repaired, by its name."""
        found = {name: self.counts[name] for name in ("documents", "queries")}
        found |= dict(sorted(self.counts.items()))
        lines = {} if self._client is None else self._client.ledger.by_stage()
        for stage, line in sorted(lines.items()):
            found |= {
                f"{stage}: answers": line.answers,
                f"{stage}: tokens read": line.prompt_tokens,
                f"{stage}: tokens written": line.completion_tokens,
            }
            found |= {f"{stage}: answers {name}": n for name in REPAIRS if (n := getattr(line, name))}
        return found

    async def _draft_all(self, document: Sampled) -> Drafted:
        """Ask both stages about one document."""
        description: str | None = ""
        first = self.plan.describe(document)
        if first is not None:
            description = await self._ask(first, "description")
        if description is None:
            return Drafted(document, None)
        drafts = [await self._draft(document, description, slot) for slot in range(self.plan.per_document)]
        return Drafted(document, description, tuple(drafts))

    async def _draft(self, document: Sampled, description: str, slot: int, first: int = 0) -> Draft:
        """Ask for samples of one query until the gate lets one through.

        Args:
            document: The document.
            description: Stage A's answer.
            slot: Which of the document's queries it is.
            first: How many samples of it were asked for before.
        """
        rejected: list[str] = []
        start = slot * self.plan.tries
        for sample in range(start + first, start + self.plan.tries):
            query = await self._ask(self.plan.query(document, description, sample), "query")
            if query is None:
                rejected.append(UNREADABLE)
                continue
            why = judge(query, document.text, self.plan.caps)
            if not why:
                return Draft(slot, query, sample, tuple(rejected))
            rejected.extend(why)
        return Draft(slot, None, start + self.plan.tries - 1, tuple(rejected))

    async def _ask(self, request: Request, key: str) -> str | None:
        found = await self.client.ask_valid(request, lambda text: read_text(text, key), self.plan.llm.attempts)
        return None if isinstance(found, Failure) else found

    def finish(self, drafted: Drafted) -> Iterator[dict[str, Any]]:
        """Yield a document's rows; a query that repeats an earlier row's is asked for again, here and in order.

        Where there is no client, it is given up.
        """
        document, description = drafted.document, drafted.description
        self.counts["documents"] += 1
        self.counts += self.plan.cut.counts([document.text])
        if description is None:
            self.counts["documents without a readable description"] += 1
            return
        for first in drafted.drafts:
            draft = first
            self._count(draft)
            while draft.query is not None and not self._is_new(draft.query):
                self.counts[f"rejected: {REPEATED}"] += 1
                if self._client is None:
                    draft = Draft(draft.slot, None, draft.sample)
                    break
                asked = draft.sample + 1 - draft.slot * self.plan.tries
                draft = self.client.run(self._draft(document, description, draft.slot, asked))
                self._count(draft)
            if draft.query is None:
                self.counts["queries given up"] += 1
                continue
            self.counts["queries"] += 1
            yield self._row(document, description, draft)

    def _count(self, draft: Draft) -> None:
        self.counts.update(f"rejected: {why}" if why != UNREADABLE else why for why in draft.rejected)

    def _is_new(self, query: str) -> bool:
        digest = hashlib.blake2b(plain(query).encode("utf-8", "surrogatepass"), digest_size=12).digest()
        if digest in self._written:
            return False
        self._written.add(digest)
        return True

    def _row(self, document: Sampled, description: str, draft: Draft) -> dict[str, Any]:
        lens = self.plan.lens
        task = {"task": self.plan.task} if self.plan.task else {}
        return {
            "document": document.id,
            **task,
            "description": description,
            "query": draft.query,
            "lens": lens.name,
            "mechanism": lens.mechanism,
            "prompt": lens.prompt,
            "model": self.plan.llm.model,
            "sampling": {"temperature": self.plan.llm.temperature, "seed": self.plan.llm.seed},
            "sample": draft.sample,
        }


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line of JSONL."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def ordered(client: Client, items: Iterable[Any], work: Callable[[Any], Any], ahead: int) -> Iterator[Any]:
    """Yield the results of an asynchronous function over items, in their order, with so many on their way at most.

    Items are read in the caller's thread, as they are needed. If one fails, the others are cancelled; calls that were
    sent already are waited for by the client, so that their answers are kept.

    Args:
        client: In whose loop the work is done.
        items: The items, read once.
        work: From an item to a coroutine.
        ahead: The most items at once.

    Raises:
        BaseException: What the work on the first item that failed raised.
    """
    source = iter(items)
    pending: deque[asyncio.Task[Any]] = deque()

    async def stop() -> None:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        pending.clear()

    async def step(more: list[Any]) -> Any:
        pending.extend(asyncio.create_task(work(item)) for item in more)
        try:
            return await pending[0]
        except Exception:
            await stop()
            raise

    try:
        while True:
            more = list(islice(source, ahead - len(pending)))
            if not more and not pending:
                return
            found = client.run(step(more))
            pending.popleft()
            yield found
    finally:
        if pending:
            client.run(stop())
