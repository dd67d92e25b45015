"""Training rows as the network reads them: every text tokenised once, and batches that are sorted by length.

A batch is one list of texts, anchors, positives and negatives together, the longest first, so that it can be cut into
sub-batches of similar length. Beside the tokens it says which text is which row's, which texts are the same, and which
of them answer an anchor: the order of the texts decides nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from obliq_eval.errors import UserError, raise_all
from obliq_train.contrast import answers, keys
from obliq_train.reading import Ragged, Reader, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import datasets
    from numpy.typing import NDArray

    from obliq_eval.edges import Edge
    from obliq_models.encoders.tokens import Padding
    from obliq_train.recipe import Recipe
    from obliq_train.rows import Row

COLUMN = "row"
"""The only column of the data set: the number of the row."""
TEXTS = "texts_"
"""Put before the names of a batch's tensors: sentence-transformers' trainer makes one feature of all that have it."""


@dataclass(frozen=True)
class Contrasted:
    """What an anchor is contrasted with, over some random batches.

    Args:
        documents: Mean number of documents beside the own positive that an anchor is pushed away from.
        masked: Mean number of documents beside the own positive that are left out, because they answer the anchor.
    """

    documents: float
    masked: float


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows ready for training. It is the trainer's collator as well.

    Args:
        tokens: Of each distinct text in its role, special tokens included; int32.
        places: For each row the texts of its anchor, its positive and its negatives; -1 where it has fewer negatives
            than the widest row; int64, shape (rows, 2 + negatives).
        keys: The key of each of these texts; 0 where there is none; int64, the same shape.
        answers: For each row the keys that may not be negatives; its own text's first; int64.
        margins: The teacher's score of the positive less that of each negative; NaN where there is none; float32,
            shape (rows, negatives); None if the loss asks for none.
        padding: How texts are brought to one length.
        counts: Whatever was cut or passed over, by its name.
    """

    tokens: Ragged = field(repr=False)
    places: NDArray[np.int64] = field(repr=False)
    keys: NDArray[np.int64] = field(repr=False)
    answers: Ragged = field(repr=False)
    margins: NDArray[np.float32] | None = field(repr=False)
    padding: Padding
    counts: Mapping[str, int]
    valid_label_columns: tuple[str, ...] = ()
    """Asked for by sentence-transformers' trainer: no column is a label."""

    @classmethod
    def of(
        cls, rows: Sequence[Row], edges: Mapping[str, Sequence[Edge]], tokenizer: Any, recipe: Recipe
    ) -> TrainingSet:
        """Tokenise the texts of rows.

        The first positive of a row is trained on; the others are answers only, and are counted.

        Args:
            rows: The rows, in the order of their file.
            edges: `{source: the whole graph}`; a source without a graph may be left out.
            tokenizer: The base's, one of the library `tokenizers`.
            recipe: Prefixes, lengths and the kind of loss.

        Raises:
            UserError: If there are no rows, the tokenizer is of another kind or cannot pad, or the loss compares
                margins and rows have no scores.
        """
        if not rows:
            raise UserError("there are no rows to train on; is every part left out?")
        margins = None if recipe.loss.kind == "infonce" else _margins(rows)
        reader = Reader(recipe.model)
        width = 2 + max(len(row.negatives) for row in rows)
        places = np.full((len(rows), width), -1, np.int64)
        known = np.zeros((len(rows), width), np.int64)
        for number, row in enumerate(rows):
            documents = (row.positives[0], *row.negatives)
            own = [reader.place(row.query, "query"), *(reader.place(one, "document") for one in documents)]
            places[number, : len(own)] = own
            known[number, : len(own)] = [keys(passage.text) for passage in (row.query, *documents)]
        tokens, padding, counts = reader.tokens(tokenizer)
        counts |= {
            "rows": len(rows),
            "query tokens": int(tokens.lengths[places[:, 0]].sum()),
            "document tokens": int(tokens.lengths[places[:, 1:][places[:, 1:] >= 0]].sum()),
            "negatives of the widest row": width - 2,
            "negatives that shorter rows lack": int((places < 0).sum()),
            "positives beside the first": sum(len(row.positives) - 1 for row in rows),
        }
        found = [
            np.array([own, *sorted(some - {own})])
            for own, some in zip(known[:, 0].tolist(), answers(rows, edges), strict=True)
        ]
        return cls(tokens, places, known, Ragged.of(found, np.int64), margins, padding, counts)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.places)

    @property
    def dataset(self) -> datasets.Dataset:
        """The rows by their numbers, for the trainer to draw from."""
        import datasets

        return datasets.Dataset.from_dict({COLUMN: np.arange(len(self))})

    @property
    def truncated(self) -> dict[str, int]:
        """How many distinct texts were cut, by role."""
        return {role: self.counts[f"truncated {role} texts"] for role in ("query", "document")}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row's texts; 0 where there is none; shape (rows, 2 + negatives)."""
        return np.where(self.places >= 0, self.tokens.lengths[self.places], 0)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return `collate(features)`."""
        return self.collate(features)

    def collate(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch of rows.

        Args:
            features: `{COLUMN: number of a row}` for each row.

        Returns:
            int64 tensors, and `modality` as sentence-transformers has it, all with `TEXTS` before their names.
            `input_ids`, `attention_mask` and, for some, `token_type_ids`: shape (texts, longest), the longest first.
            `place`: which text is each row's anchor, positive and negatives, or -1; shape (rows, 2 + negatives).
            `keys`: of each row's positive and negatives; shape (rows, 1 + negatives). `answers`: keys that may not be
            an anchor's negatives, some of them twice; shape (rows, most). `margins`: float32, if the loss needs them.
        """
        import torch

        from obliq_models.encoders.tokens import Tokens

        rows = np.array([feature[COLUMN] for feature in features], np.int64)
        place = self.places[rows]
        there = place >= 0
        texts = place[there]
        order = np.argsort(-self.tokens.lengths[texts], kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        place[there] = position
        read: list[Any] = [self.tokens.row(text) for text in texts[order].tolist()]
        batch = Tokens(read, self.padding).features(range(len(read)), torch.device("cpu"))
        batch["place"] = torch.from_numpy(place)
        batch["keys"] = torch.from_numpy(self.keys[rows, 1:])
        batch["answers"] = torch.from_numpy(self._answers(rows))
        if self.margins is not None:
            batch["margins"] = torch.from_numpy(self.margins[rows])
        return {TEXTS + name: value for name, value in batch.items()}

    def contrasted(self, size: int, batches: int = 20, seed: int = 0) -> Contrasted:
        """Return what an anchor is contrasted with in random batches.

        Args:
            size: Rows that are contrasted with each other: those of one device, or of all if documents are gathered.
            batches: How many are drawn.
            seed: Of the draw.
        """
        random = np.random.default_rng(seed)
        size = min(size, len(self))
        documents = masked = 0
        for _ in range(batches):
            rows = random.choice(len(self), size, replace=False)
            there, known = self.places[rows, 1:] >= 0, self.keys[rows, 1:]
            for at, number in enumerate(rows.tolist()):
                wrong = np.isin(known, self.answers.row(number)) & there
                wrong[at, 0] = False
                masked += int(wrong.sum())
                documents += int(there.sum()) - 1 - int(wrong.sum())
        return Contrasted(documents / (batches * size), masked / (batches * size))

    def check_contrast(self, recipe: Recipe, processes: int) -> None:
        """Refuse batches in which an anchor has nothing to be contrasted with: their loss is 0 whatever is learnt.

        Raises:
            UserError: If there is one row in a contrast, and no row has a negative.
        """
        rows = recipe.batch.per_device * (processes if recipe.loss.gather else 1)
        if rows == 1 and self.places.shape[1] == 2:
            raise UserError(
                "batch.per_device is 1 and no row has a negative, so that an anchor is contrasted with nothing: raise "
                "batch.per_device, or mine negatives"
            )

    def verify(self, model: Any, rows: Sequence[Row], recipe: Recipe, count: int = 8) -> None:
        """Check that the model would read the same tokens by itself as it is trained on.

        Raises:
            UserError: If sentence-transformers makes something else of a text, a chat template for example.
        """
        base = recipe.model
        for number in np.linspace(0, len(rows) - 1, min(count, len(rows)), dtype=int).tolist():
            for column, passage, role in ((0, rows[number].query, "query"), (1, rows[number].positives[0], "document")):
                before, limit = (
                    (base.query_prefix, base.query_length)
                    if role == "query"
                    else (base.document_prefix, base.document_length)
                )
                read = model.preprocess([before + told(passage)], processing_kwargs={"text": {"max_length": limit}})
                if read["input_ids"][0].tolist() != self.tokens.row(int(self.places[number, column])).tolist():
                    raise UserError(
                        f"row {number + 1}: sentence-transformers reads the {role} as other tokens than those that are "
                        f"trained on (as a {read.get('modality', 'text')}); pin the base's modality to plain text"
                    )

    def _answers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the answers of rows, filled up with each row's first."""
        some = [self.answers.row(row) for row in rows.tolist()]
        filled = np.empty((len(some), max(len(one) for one in some)), np.int64)
        for at, one in enumerate(some):
            filled[at, : len(one)], filled[at, len(one) :] = one, one[0]
        return filled


def _margins(rows: Sequence[Row]) -> NDArray[np.float32]:
    """Return the teacher's margins; NaN where a row has no further negative."""
    margins = np.full((len(rows), max(len(row.negatives) for row in rows)), np.nan, np.float32)
    if not margins.shape[1]:
        raise UserError("the loss compares margins, and no row has a negative; mine some, or set loss.kind = infonce")
    problems = []
    for number, row in enumerate(rows):
        if (scores := row.scores) is None:
            problems.append(f'row {number + 1}: no "scores" with a finite number for each of its documents')
        else:
            positive, negative = scores
            margins[number, : len(negative)] = [positive[0] - score for score in negative]
    raise_all(problems, "the loss compares a cross-encoder's margins; score the rows, or set loss.kind = infonce")
    return margins
