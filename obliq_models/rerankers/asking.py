"""How rerankers ask a language model about numbered documents, and what they take for an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval.delimited import answer_line, delimit
from obliq_eval.errors import UserError
from obliq_models.llm.answers import Reading, ranking_schema, read_ranking, read_selection, selection_schema
from obliq_models.rerankers.cutting import Cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_models.llm.client import Client
    from obliq_models.llm.protocol import Request
    from obliq_models.llm.settings import LLMSettings
    from obliq_models.prompts import Prompt
    from obliq_models.rerankers.base import Query


@dataclass(frozen=True)
class Asking:
    """A language model, and how documents are shown to it.

    Args:
        llm: The model and how it is asked.
        client: What asks it; None where nothing is asked, as for an estimate.
        cut: How documents are cut.
    """

    llm: LLMSettings
    client: Client | None = None
    cut: Cut = field(default_factory=Cut)

    def request(
        self, prompt: Prompt, query: Query, texts: Sequence[str], *, stage: str, choose: int = 0, sample: int = 0
    ) -> Request:
        """Return one question.

        Args:
            prompt: What is asked; its answer is a ranking or a selection.
            query: The query.
            texts: The documents' texts, in the order of their numbers, not yet cut.
            stage: For the ledger.
            choose: How many are to be selected; 0 for a ranking of all.
            sample: See `Request`; retries take the numbers that follow, so samples are `llm.attempts` apart.
        """
        count = len(texts)
        values = {
            "count": count,
            "choose": choose,
            "material": delimit(query.text, [self.cut(text) for text in texts]),
            "answer": answer_line(_kind(prompt), count, choose or None),
        }
        messages = prompt.messages(**{name: values[name] for name in prompt.placeholders})
        schema = selection_schema(choose) if choose else ranking_schema(count)
        place = sample * self.llm.attempts
        return self.llm.request(messages, schema, stage=stage, query=query.id, sample=place)

    async def ask(self, request: Request, count: int, choose: int = 0) -> Reading | None:
        """Return the positions, from 0 on, of all documents or of those chosen; None if every answer was useless.

        Raises:
            UserError: If the model cannot be reached, or a limit is passed.
        """
        if self.client is None:
            raise ValueError("nobody to ask: this was made for estimates")

        def read(text: str) -> Reading | None:
            return read_selection(text, count, choose) if choose else read_ranking(text, count)

        found = await self.client.ask_valid(request, read, self.llm.attempts)
        if not isinstance(found, Reading):
            return None
        return Reading(tuple(number - 1 for number in found.numbers), found.unknown, found.repeated, found.added)

    def settings(self, prompt: Prompt) -> dict[str, Any]:
        """Return, as JSON values, whatever of all this can change an answer."""
        return {
            "prompt": prompt.name,
            "prompt_revision": prompt.revision,
            **self.cut.settings(),
            "llm": self.llm.answering(),
        }


def check(prompt: Prompt, answer: str, needed: frozenset[str]) -> Prompt:
    """Return the prompt if a reranker can use it.

    Raises:
        UserError: If its answer is of another form, or it does not show the documents or say how to answer.
    """
    if prompt.answer != answer:
        raise UserError(f"the prompt {prompt.name!r} asks for a {prompt.answer}, and a {answer} is needed here")
    if missing := {"material", "answer"} - prompt.placeholders:
        raise UserError(f"the prompt {prompt.name!r} lacks the placeholders {', '.join(sorted(missing))}")
    if unknown := prompt.placeholders - needed:
        raise UserError(f"the prompt {prompt.name!r} has placeholders that nothing fills: {', '.join(sorted(unknown))}")
    return prompt


def repairs(reading: Reading) -> Counter[str]:
    """Return what of an answer had to be repaired."""
    found = Counter(
        {
            "repaired answers": int(reading.repaired),
            "numbers in answers that no document has": reading.unknown,
            "documents that an answer names again": reading.repeated,
            "documents that an answer leaves out or has too many": reading.added,
        }
    )
    return +found


def _kind(prompt: Prompt) -> Any:
    return prompt.answer
