"""A teacher's scores in training rows: what MarginMSE and the listwise reranker of Appendix N are trained on.

Under the key `scores` a row holds `{"pos": […], "neg": […]}`: one number for each positive and negative, in their order
(Hofstätter et al., "Improving efficient neural ranking models with cross-architecture knowledge distillation", 2020).
The teacher is a cross-encoder, or a stored run: then the row's documents are the run's, and their scores are minus
their ranks, since the order is all that a language model's list says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.rerankers.base import Query
from obliq_train.reading import told
from obliq_train.rows import Passage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from obliq_eval.records import Run
    from obliq_models.rerankers.crossencoder import CrossEncoder
    from obliq_train.distinct import Distinct
    from obliq_train.rows import Row

KEY = "scores"
AT_ONCE = 64
"""Rows that are scored in one call; each is a batch of its own, so that the number changes no score."""
DECIMALS = 6


@dataclass
class Teacher:
    """A cross-encoder that scores rows.

    Args:
        model: The cross-encoder.
    """

    model: CrossEncoder
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """How many documents were scored, and what should be known of them, by name."""

    def settings(self) -> dict[str, Any]:
        """Return which model it is, as JSON values."""
        found = self.model.settings()
        return {"model": found["reranker"], "revision": found["revision"]}

    def scored(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield each row with the scores of its query against each of its documents, instructions before both.

        A row is a batch of its own, and scores are rounded to six decimals: the same row and model give the same bytes.

        Raises:
            UserError: If the model fails, or a score is not finite.
        """
        source = iter(rows)
        while some := list(islice(source, AT_ONCE)):
            for row, found in zip(some, self.model.grouped([_group(row) for row in some]), strict=True):
                numbers = [round(score, DECIMALS) for score in found]
                self.counts["documents scored by the teacher"] += len(numbers)
                if len(numbers) > 1 and len(set(numbers)) == 1:
                    self.counts["rows whose documents all have one score"] += 1
                yield _with(row, numbers)


def load(name: str, device: str | None = None) -> Teacher:
    """Load a cross-encoder by its full name or folder.

    Raises:
        UserError: If it cannot be loaded, or is none.
    """
    from obliq_models.rerankers import crossencoder

    return Teacher(crossencoder.CrossEncoder(crossencoder.load(name, device), name=name))


@dataclass
class Lists:
    """A stored run whose order is what is learned.

    Args:
        run: The run.
        name: Its id or file.
        documents: The corpus.
        depth: How many of its first documents make a row's list.
    """

    run: Run
    name: str
    documents: Distinct
    depth: int
    counts: Counter[str] = field(default_factory=Counter, init=False)
    """What was listed, and what was left out, by name."""

    def settings(self) -> dict[str, Any]:
        """Return which run it is, as JSON values."""
        from obliq_eval import runs

        return {"run": self.name, "content": runs.content_hash(self.run), "depth": self.depth}

    def scored(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield each row with the first documents of the run in place of its own, scored by minus their ranks.

        A row whose `query_id` the run does not answer with two documents or more is left out and counted.

        Raises:
            UserError: If a document of the run is not in the corpus.
        """
        for row in rows:
            ranking = self.run.rankings.get(row.query_id)
            ids: Sequence[str] = () if ranking is None else ranking.documents[: self.depth]
            if len(ids) < 2:
                self.counts["rows left out, which the run does not answer"] += 1
                continue
            if missing := [one for one in ids if one not in self.documents]:
                raise UserError(f"the run's document {missing[0]!r} is not in the corpus: give --data the run's corpus")
            self.counts.update({"rows": 1, "negatives": len(ids) - 1})
            yield _with(self._listed(row, ids), [-float(rank) for rank in range(1, len(ids) + 1)])

    def _listed(self, row: Row, ids: Sequence[str]) -> Row:
        texts = self.documents.read([self.documents.column[one] for one in ids])
        first, *others = (Passage(row.positives[0].instruction, text) for text in texts)
        return replace(row, positives=(first,), negatives=tuple(others), positive_ids=(ids[0],),
                       negative_ids=tuple(ids[1:]))  # fmt: skip


def lists(reference: str, documents: Distinct, depth: int) -> Lists:
    """Open a stored run or a run file.

    Raises:
        UserError: If there is none, or it answers queries that are kept for testing.
    """
    from obliq_eval import runs

    stored = runs.load(reference)
    if stored.manifest is not None and stored.manifest.coverage != "dev":
        _refuse_test(stored.manifest.task)
    return Lists(stored.read(), stored.name, documents, depth)


def _refuse_test(task: str) -> None:
    from obliq_eval.data.official import OFFICIAL
    from obliq_eval.data.sources import MINI

    if task in OFFICIAL or task in MINI:
        raise UserError(
            f"the run answers the test queries of {task}, on which nothing is trained: take a run over queries of your "
            "own, such as synthetic ones in a folder"
        )


def _group(row: Row) -> tuple[Query, list[str]]:
    return Query("", told(row.query)), [told(passage) for passage in (*row.positives, *row.negatives)]


def _with(row: Row, numbers: Sequence[float]) -> Row:
    first = len(row.positives)
    return replace(row, more={**row.more, KEY: {"pos": list(numbers[:first]), "neg": list(numbers[first:])}})
