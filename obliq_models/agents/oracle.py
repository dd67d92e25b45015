"""The oracle's tournament: a language model ranks a pool that holds every judged document; a ceiling, no retriever."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models import prompts
from obliq_models.agents.base import Agent, Given, prepared, ranked
from obliq_models.agents.bracket import SHAPES, Shape, batches, calls, shuffled, woven
from obliq_models.llm.answers import read_ranking
from obliq_models.llm.client import gather
from obliq_models.rerankers.asking import repairs
from obliq_models.rerankers.base import Candidate, Query
from obliq_models.rerankers.stage import THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import datasets

    from obliq_eval.records import Judgments
    from obliq_models.agents.retrieval import Retrieval
    from obliq_models.llm.protocol import Request
    from obliq_models.rerankers.asking import Asking

STAGE = "oracle"
DEPTH = 100


class Oracle(Agent):
    """Ranks what retrievers find together with all judged documents, batch by batch and level by level.

    Judgments reach it as the attribute `judgments`, which tasks of obliq set while it searches
    (`obliq_eval.oracles`). Grades are not looked at: which documents are judged is all that it learns.

    Args:
        retrievers: Whose first documents are in the pool.
        asking: The language model.
        depth: How many of each retriever's documents.
        seed: Of the order in which documents are shown.
        shape: Of the tournament; None for the task's own.
        solutions: `{document id: solution}`, shown with the documents; None for documents alone.
        failures: Share of failed questions above which a search is refused.
    """

    name = "oracle-tournament"
    is_oracle = True
    judgments: Mapping[str, Judgments] | None = None

    def __init__(
        self,
        retrievers: Sequence[Retrieval],
        asking: Asking,
        *,
        depth: int = DEPTH,
        seed: int = 0,
        shape: Shape | None = None,
        solutions: Mapping[str, str] | None = None,
        failures: float = THRESHOLD,
    ) -> None:
        super().__init__(retrievers, asking, failures=failures)
        if depth < 0:
            raise UserError(f"depth is {depth}, and must be 0 or more")
        self.depth, self.seed, self.shape, self.solutions = depth, seed, shape, solutions

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """The one prompt that it uses."""
        return ("oracle" if self.solutions is None else "oracle-solution",)

    def own_settings(self) -> dict[str, Any]:
        """Return what decides the pool and the batches."""
        shape = "the task's own" if self.shape is None else vars(self.shape)
        told = {"depth": self.depth, "seed": self.seed, "shape": shape}
        if self.solutions is not None:
            content = json.dumps(self.solutions, sort_keys=True).encode()
            told["solutions"] = hashlib.sha256(content).hexdigest()
        return told

    def shape_for(self, task: str) -> Shape:
        """Return the shape of the tournament on a task."""
        return self.shape or SHAPES.get(task, Shape())

    def calls(self, pool: int, task: str = "") -> int:
        """Return how many calls a pool costs."""
        return calls(pool, self.shape_for(task))

    def index(self, corpus: datasets.Dataset, **kwargs: Any) -> None:
        """Index the corpus, once it is known that there are judgments.

        Raises:
            UserError: If there are none, or no document of the corpus has a solution where solutions are to be shown.
        """
        self._shown()
        super().index(corpus, **kwargs)
        if self.solutions is not None and not self.known(self.solutions):
            raise UserError(f"{self.name} was given no solution of any document of this corpus: are they another's?")

    def answer(self, given: Given) -> dict[str, dict[str, float]]:
        """Rank every query's pool, all queries at once."""
        pools = self.pools(given)
        texts = self.texts({document for pool in pools.values() for document in pool})
        if self.solutions is not None:
            self.questions.repaired["documents without a solution"] = len(texts.keys() - self.solutions.keys())
            texts = {document: self._with_solution(document, text) for document, text in texts.items()}
        self.questions.repaired += self.asking.cut.counts(texts.values())
        candidates = {q: [Candidate(d, texts[d]) for d in pool] for q, pool in pools.items()}
        orders = self.questions.run(self.name, (self._play(q, candidates[q.id]) for q in given.queries))
        found = {}
        for query, order in zip(given.queries, orders, strict=True):
            if not self.questions.silent(query.id):
                found[query.id] = ranked([candidates[query.id][place].id for place in order][: given.top_k])
        return found

    def pools(self, given: Given) -> dict[str, list[str]]:
        """Return each query's pool: what the retrievers find, by rank, then the judged documents that they did not.

        Documents that the query excludes, and judged ones that the corpus lacks, are not in it.
        """
        texts = {query.id: query.text for query in given.queries}
        found = [r.search(texts, self.depth, given.excluded, given.allowed) for r in self.retrievers if self.depth]
        pools: dict[str, list[str]] = {}
        missing = 0
        for query in texts:
            judged = self._judged(query)
            known = self.known(judged)
            missing += len(judged) - len(known)
            retrieved = _by_rank([list(one[query]) for one in found])
            injected = [document for document in sorted(known) if given.permits(query, document)]
            pools[query] = list(dict.fromkeys([*retrieved, *injected]))
            self.questions.repaired["judged documents that no retriever found"] += len(pools[query]) - len(retrieved)
        self.questions.repaired["judged documents that the corpus lacks"] = missing
        return pools

    async def _play(self, query: Query, pool: Sequence[Candidate]) -> list[int]:
        """Return the places of a pool, the best first; a batch that goes on as a whole is not asked about."""
        shape = self.shape_for(query.task)
        left = list(range(len(pool)))
        tails: list[list[int]] = []
        while len(left) > shape.whole:
            dealt = batches(shuffled(left, self._seed(query, len(tails))), shape.batch)
            orders = await gather(self._order(query, pool, batch, shape.promote) for batch in dealt)
            left = sorted(place for order in orders for place in order[: shape.promote])
            tails.append(woven([order[shape.promote :] for order in orders]))
        best = await self._order(query, pool, shuffled(left, self._seed(query, len(tails))))
        return [*best, *(place for tail in reversed(tails) for place in tail)]

    async def _order(
        self, query: Query, pool: Sequence[Candidate], batch: Sequence[int], promote: int = 1
    ) -> list[int]:
        """Return a batch in the order of the answer; without a usable one, in the order of the pool."""
        if len(batch) <= promote:
            return list(batch)
        request = self.request(query, [pool[place].text for place in batch])
        found = await self.questions.ask(request, lambda text: read_ranking(text, len(batch)))
        if found is None:
            return sorted(batch)
        self.questions.repaired += repairs(found)
        return [batch[number - 1] for number in found.numbers]

    def request(self, query: Query, texts: Sequence[str]) -> Request:
        """Return the question about one batch."""
        return self.asking.request(prompts.load(*self.prompt_names), query, texts, stage=STAGE)

    def _judged(self, query: str) -> set[str]:
        return {document for one in self._shown().values() for document in one.grades.get(query, ())}

    def _shown(self) -> Mapping[str, Judgments]:
        if self.judgments is None:
            raise UserError(
                f"{self.name} was shown no judgments: only tasks of obliq hand them over, and only to an oracle that "
                "they search with directly, so it can be no part of a fusion or a pipeline, and run on no other task"
            )
        return self.judgments

    def _with_solution(self, document: str, text: str) -> str:
        solution = (self.solutions or {}).get(document)
        return text if solution is None else f"{text}\n\nSolution: {solution}"

    def _seed(self, query: Query, level: int) -> str:
        return f"{self.seed}/{query.id}/{level}"


def read_solutions(path: Path) -> dict[str, str]:
    """Return `{document id: solution}` from a JSONL file of objects with `_id` (or `id`) and `solution`.

    A corpus file that has the field serves; lines without it are passed over.

    Raises:
        UserError: If the file cannot be read, a line is no object with an id, or no line has a solution.
    """
    from obliq_eval.data.files import lines

    found: dict[str, str] = {}
    for number, line in lines(path):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        document = row.get("_id", row.get("id")) if isinstance(row, dict) else None
        if not isinstance(document, str):
            raise UserError(f'{path}, line {number}: expected an object with "_id", a string, and "solution"')
        solution = row.get("solution")
        if not isinstance(solution, str) or not solution.strip():
            continue
        if found.setdefault(document, solution) != solution:
            raise UserError(f"{path}, line {number}: document {document!r} has another solution further up")
    if not found:
        raise UserError(f'{path} has no solution to show: no line has a field "solution" with a text in it')
    return found


def load(  # noqa: PLR0913 -- each of them can change the pool or its order
    name: str,
    revision: str | None = None,  # noqa: ARG001 -- a loader's form
    *,
    depth: int = DEPTH,
    seed: int = 0,
    batch: int | None = None,
    promote: int | None = None,
    whole: int | None = None,
    solutions: str | None = None,
    failures: float = THRESHOLD,
    **parts: Any,
) -> Oracle:
    """Load the retrievers; the language model is not asked anything yet.

    Args:
        name: Full name of the model.
        revision: Its revision.
        depth: How many documents of each retriever are in the pool.
        seed: Of the order in which documents are shown.
        batch: Documents in one call; with `promote` and `whole` left out too, what the task's shape says.
        promote: How many of a batch go on.
        whole: The largest pool that one call ranks.
        solutions: JSONL file with the documents' solutions; an empty name is refused, and None shows documents alone.
        failures: Share of failed questions above which a search is refused.
        **parts: See `prepared`.

    Raises:
        UserError: If a part cannot be had.
    """
    if solutions == "":
        raise UserError(
            f"{name} shows solutions, and no corpus that we know holds any: name a JSONL file of objects with _id and "
            f'solution in a model file with the lines model = "{name.rpartition("/")[2]}" and solutions = "FILE"'
        )
    sizes = {"batch": batch, "promote": promote, "whole": whole}
    given = {key: value for key, value in sizes.items() if value is not None}
    shape = Shape(**given) if given else None
    told = None if solutions is None else read_solutions(Path(solutions))
    found, asking = prepared(name, several=True, **parts)
    return Oracle(found, asking, depth=depth, seed=seed, shape=shape, solutions=told, failures=failures)


def _by_rank(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return documents of several rankings by rank, each once."""
    places = sorted((rank, at) for at, one in enumerate(lists) for rank in range(len(one)))
    return list(dict.fromkeys(lists[at][rank] for rank, at in places))
