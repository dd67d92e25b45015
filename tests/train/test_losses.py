"""The losses against the parent class on sentence-transformers' own batches, and against a slow reading of the rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.data_collator import BaseDataCollator
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch.nn.functional import cosine_similarity

from obliq_eval.demo.twin_tokenizers import QWEN, ROBERTA
from obliq_eval.edges import Edge
from obliq_eval.errors import UserError
from obliq_train.batches import TrainingSet
from obliq_train.contrast import answers, keys
from obliq_train.losses import Contrast, Structure, left_out
from obliq_train.recipe import Base, Loss, Recipe
from obliq_train.rows import Passage, Row
from tests.train.tiny import write_roberta

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

QUERY, PASSAGE = "query: ", "passage: "
SENTENCES = [
    "whales sing in the cold sea",
    "the king spoke to his people about the harvest and the war, at very great length",
    "a ship",
    "of the north, where nobody sails in winter",
    "taxes",
    "we the people of these states",
    "night",
    "the proof goes by induction on the number of edges of the graph, and then by contradiction",
    "songs of the cold",
    "it was the best of times",
]


def tiny(folder: Path, *, dropout: float = 0.0, family: Any = ROBERTA) -> SentenceTransformer:
    """A RoBERTa of two layers and 32 dimensions with random weights."""
    write_roberta(folder, dropout=dropout, family=family)
    model = SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32, "mean"), Normalize()], device="cpu")
    model.max_seq_length = 40
    return model.train()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return tiny(tmp_path_factory.mktemp("tiny") / "model")


def recipe(**loss: Any) -> Recipe:
    base = Base(base="x", query_prefix=QUERY, document_prefix=PASSAGE, query_length=40, document_length=40)
    return Recipe(name="r", purpose="a test", model=base, loss=Loss(**loss))


def row(query: int, positive: int, *negatives: int, **more: Any) -> Row:
    said = [Passage("", text) for text in SENTENCES]
    return Row(said[query], (said[positive],), tuple(said[one] for one in negatives), more=more)


PAIRS = [row(0, 1), row(2, 3), row(4, 5), row(6, 7)]
TRIPLES = [row(0, 1, 8, 9), row(2, 3, 7, 6), row(4, 5, 0, 2)]
RAGGED = [row(0, 1, 8, 9), row(2, 3), row(4, 5, 7)]


def feature(made: TrainingSet, rows: Sequence[int]) -> dict[str, Any]:
    """One feature of a batch, as the trainer makes it of the collator's tensors."""
    batch = made.collate([{"row": number} for number in rows])
    assert all(name.startswith("texts_") for name in batch)
    return {name.removeprefix("texts_"): value for name, value in batch.items()}


def gradient(model: SentenceTransformer, loss: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def ours(
    model: SentenceTransformer, rows: Sequence[Row], budget: int = 64, edges: Sequence[Edge] = (), **loss: Any
) -> torch.Tensor:
    made = TrainingSet.of(rows, {"": edges}, model.tokenizer, recipe(**loss))
    return Contrast(model, recipe(**loss).loss, budget)([feature(made, range(len(rows)))])


def parents(model: SentenceTransformer, rows: Sequence[Row], scale: float = 50.0) -> torch.Tensor:
    """The parent class's loss of the batch as sentence-transformers collates it, each column for itself."""
    columns = ["anchor", "positive", *(f"negative_{n + 1}" for n in range(len(rows[0].negatives)))]
    texts = [[its.query, its.positives[0], *its.negatives] for its in rows]
    prompts = dict.fromkeys(columns, PASSAGE) | {"anchor": QUERY}
    data = [dict(zip(columns, [text.text for text in its], strict=True)) for its in texts]
    batch = BaseDataCollator(preprocess_fn=model.preprocess, prompts=prompts)(data)
    features = [
        {name.removeprefix(f"{column}_"): value for name, value in batch.items() if name.startswith(f"{column}_")}
        for column in columns
    ]
    return CachedMultipleNegativesRankingLoss(model, scale=scale, mini_batch_size=2)(features, None)


@pytest.mark.parametrize("rows", [PAIRS, TRIPLES])
@pytest.mark.parametrize("budget", [1, 40, 120, 10_000])
@pytest.mark.parametrize("mask", [True, False])
def test_without_false_negatives_it_is_the_parents_loss(
    model: SentenceTransformer, rows: list[Row], budget: int, mask: bool
) -> None:
    """In sub-batches of one text, of a few, and of all; that texts are sorted by length decides nothing."""
    if mask and rows is TRIPLES:  # sentences 0 and 2 are anchors and negatives of another row: leave their masks out
        rows = [row(0, 1, 8, 9), row(2, 3, 7, 6), row(4, 5, 8, 9)]
    wanted = parents(model, rows)
    expected = gradient(model, wanted)
    found = ours(model, rows, budget, mask=mask)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-6 * 50)
    assert torch.allclose(gradient(model, found), expected, atol=1e-6 * float(expected.abs().max()) * 10)


def test_scale_is_the_recipes(model: SentenceTransformer) -> None:
    """The published 0.02 is a scale of 50, not the parent's 20."""
    assert Loss().scale == 50.0
    for scale in (20.0, 50.0):
        assert ours(model, PAIRS, scale=scale).item() == pytest.approx(float(parents(model, PAIRS, scale)), abs=1e-4)
    assert abs(float(parents(model, PAIRS, 20.0)) - float(parents(model, PAIRS, 50.0))) > 0.01


def vectors_of(model: SentenceTransformer, texts: Sequence[str]) -> torch.Tensor:
    """Vectors with a gradient, text by text, without padding."""
    return torch.stack([model(model.preprocess([text]))["sentence_embedding"][0] for text in texts])


def slow_infonce(model: SentenceTransformer, rows: Sequence[Row], edges: Sequence[Edge] = ()) -> torch.Tensor:
    """Row by row, document by document."""
    barred, losses = answers(rows, {"": edges}), []
    for i, this in enumerate(rows):
        anchor = vectors_of(model, [QUERY + this.query.text])[0]
        own, total = torch.tensor(0.0), torch.tensor(0.0)
        for j, other in enumerate(rows):
            for c, document in enumerate((other.positives[0], *other.negatives)):
                score = 50.0 * cosine_similarity(anchor, vectors_of(model, [PASSAGE + document.text])[0], dim=0)
                if i == j and c == 0:
                    own = score
                elif keys(document.text) in barred[i]:
                    continue
                total = total + score.exp()
        losses.append(total.log() - own)
    return torch.stack(losses).mean()


AMBIGUOUS = [
    [row(0, 1, 8, 9), row(0, 3, 1), row(4, 1, 5)],  # one anchor with two positives; a positive of two anchors
    [row(0, 1, 2), row(2, 0), row(1, 2, 0, 3)],  # documents as anchors: each meets its own text
    [row(0, 1, 1), row(2, 3)],  # a positive among the negatives: a copy of it
    RAGGED,
    [row(0, 1)],
]


@pytest.mark.parametrize("rows", AMBIGUOUS)
@pytest.mark.parametrize("budget", [30, 10_000])
def test_it_is_the_slow_loss(model: SentenceTransformer, rows: list[Row], budget: int) -> None:
    wanted = slow_infonce(model, rows)
    expected = gradient(model, wanted)
    found = ours(model, rows, budget)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-4)
    assert torch.allclose(gradient(model, found), expected, atol=1e-5 * float(expected.abs().max()) + 1e-7)


def test_a_neighbour_in_the_graph_is_no_negative(model: SentenceTransformer) -> None:
    def named(its: Row, anchor: str, *ids: str) -> Row:
        return replace(its, query_id=anchor, positive_ids=ids[:1], negative_ids=ids[1:])

    rows = [named(row(0, 1), "x", "p"), named(row(2, 3, 4), "y", "n", "m")]
    edges = [Edge("x", "p", 1), Edge("x", "n", 2)]
    found = float(ours(model, rows, edges=edges))
    assert found == pytest.approx(float(slow_infonce(model, rows, edges)), abs=1e-4)
    assert found < ours(model, rows).item() - 1e-4


def test_a_copy_under_another_id_is_no_negative(model: SentenceTransformer) -> None:
    """The copy differs in white space only. Without it both rows have the other's positive alone beside their own."""
    rows = [row(0, 1), replace(row(2, 3), negatives=(Passage("", f"  {SENTENCES[1]}\n"),))]
    made = TrainingSet.of(rows, {}, model.tokenizer, recipe())
    assert bare(made, [0, 1]).tolist() == [[False, True, False, True], [False, True, False, False]]
    assert ours(model, rows[:1]).item() == pytest.approx(0.0, abs=1e-6)


def bare(made: TrainingSet, rows: Sequence[int]) -> torch.Tensor:
    batch = feature(made, rows)
    there = batch["place"][:, 1:] >= 0
    positive = torch.arange(len(rows)) * there.shape[1]
    return left_out(there.flatten(), batch["keys"].flatten(), batch["answers"], positive)


numbers = st.integers(0, len(SENTENCES) - 1)


@given(
    st.lists(st.tuples(numbers, numbers, st.lists(numbers, max_size=3), st.booleans()), min_size=1, max_size=8),
    st.lists(st.tuples(numbers, numbers), max_size=12),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_no_document_that_an_anchor_is_contrasted_with_answers_it(
    model: SentenceTransformer, drawn: list[tuple[int, int, list[int], bool]], graph: list[tuple[int, int]], data: Any
) -> None:
    """Random rows over a random graph; an anchor is a document of the graph, or one's description."""
    rows = []
    for query, positive, negatives, described in drawn:
        said = replace(row(query, positive, *negatives), query_id=str(query), source="s")
        said = replace(said, positive_ids=(str(positive),), negative_ids=tuple(map(str, negatives)))
        rows.append(replace(said, query=Passage("", f"description of {query}")) if described else said)
    made = TrainingSet.of(rows, {"s": [Edge(str(a), str(b), 1) for a, b in graph]}, model.tokenizer, recipe())
    batch = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, max_size=6))
    found, width = bare(made, batch).tolist(), made.places.shape[1] - 1
    for i, number in enumerate(batch):
        query = drawn[number][0]
        right = {query} | {b for a, b in graph if a == query} | {p for q, p, _, _ in drawn if q == query}
        for j, other in enumerate(batch):
            documents = [drawn[other][1], *drawn[other][2]]
            for column in range(width):
                own = i == j and column == 0
                gone = column >= len(documents) or documents[column] in right
                assert found[i][j * width + column] == (gone and not own)


def test_negatives_count_in_every_row_and_their_own(model: SentenceTransformer) -> None:
    """With equal vectors everywhere, the loss is the logarithm of the number of documents: 6 of 2 rows x 3."""
    rows = [row(0, 1, 4, 5), row(2, 3, 6, 7)]
    made = TrainingSet.of(rows, {}, model.tokenizer, recipe())
    batch = feature(made, [0, 1])
    structure = Structure(batch["place"], batch["keys"], batch["answers"])
    contrast = Contrast(model, Loss(), 100)
    assert float(contrast.of_vectors(torch.ones(8, 4), structure)) == pytest.approx(math.log(6))


def test_gradients_are_the_same_in_float32_and_close_under_autocast(model: SentenceTransformer) -> None:
    exact = ours(model, TRIPLES)
    expected = gradient(model, exact)
    with torch.autocast("cpu", torch.bfloat16):
        rough = ours(model, TRIPLES)
        found = gradient(model, rough)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.1)
    assert rough.item() != exact.item()
    assert float(torch.nn.functional.cosine_similarity(found, expected, dim=0)) > 0.95


def test_similarities_are_float32_under_autocast(model: SentenceTransformer) -> None:
    """Cosines of 1 and .999 are the same number in bfloat16: there the loss would be ln 2."""
    made = TrainingSet.of(PAIRS[:2], {}, model.tokenizer, recipe())
    batch = feature(made, [0, 1])
    structure = Structure(batch["place"], batch["keys"], batch["answers"])
    angles = torch.zeros(4)
    angles[batch["place"][:, 1]] = torch.tensor([0.0, math.acos(0.999)])
    angles[batch["place"][:, 0]] = torch.tensor([0.0, math.acos(0.999)])
    vectors = torch.stack([angles.cos(), angles.sin()], dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = Contrast(model, Loss(), 100).calculate_loss([[vectors]], structure)
    assert found.item() == pytest.approx(math.log1p(math.exp(-0.05)), abs=1e-5)


def test_margin_mse_is_the_mean_over_negatives_that_there_are(model: SentenceTransformer) -> None:
    rows = [
        replace(row(0, 1, 8, 9), more={"scores": {"pos": [3.0], "neg": [1.0, 2.5]}}),
        replace(row(2, 3), more={"scores": {"pos": [1.0], "neg": []}}),
        replace(row(4, 5, 0), more={"scores": {"pos": [0.5], "neg": [0.75]}}),
    ]
    squares = []
    for its in rows:
        texts = [QUERY + its.query.text, *(PASSAGE + p.text for p in (its.positives[0], *its.negatives))]
        anchor, positive, *negatives = vectors_of(model, texts)
        for negative, score in zip(negatives, its.more["scores"]["neg"], strict=True):
            wanted = its.more["scores"]["pos"][0] - score
            cosines = cosine_similarity(anchor, positive, dim=0) - cosine_similarity(anchor, negative, dim=0)
            squares.append((10.0 * cosines - wanted) ** 2)
    assert len(squares) == 3
    slow = torch.stack(squares).mean()
    expected = gradient(model, slow)
    found = ours(model, rows, kind="margin-mse", margin_scale=10.0)
    assert found.item() == pytest.approx(slow.item(), rel=1e-5)
    assert torch.allclose(gradient(model, found), expected, atol=1e-5 * float(expected.abs().max()))
    both = ours(model, rows, kind="hybrid", margin_scale=10.0, margin_weight=0.25)
    assert both.item() == pytest.approx(ours(model, rows).item() + 0.25 * slow.item(), rel=1e-5)


def test_dropout_draws_the_same_masks_twice(tmp_path: Path) -> None:
    """With dropout, gradients of cached sub-batches belong to the vectors that the loss saw.

    From one seed, the same sub-batches with all activations kept and with none: the second gradient would differ if
    its second pass drew other masks.
    """
    model = tiny(tmp_path / "model", dropout=0.3)
    made = TrainingSet.of(TRIPLES, {}, model.tokenizer, recipe())
    found = []
    for kept in (len, lambda _: 0):
        contrast = Contrast(model, Loss(), 60)
        contrast._kept = kept
        torch.manual_seed(0)
        loss = contrast([feature(made, range(3))])
        found.append((loss.item(), gradient(model, loss)))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-5 * float(found[0][1].abs().max()))


def test_no_more_tokens_are_alive_than_a_sub_batch_may_have(model: SentenceTransformer) -> None:
    """Counted where the network runs with a gradient: tokens whose activations have not been let go yet."""
    alive: set[int] = set()
    most = seen = 0
    forward = model.forward

    def counted(features: dict[str, Any], **more: Any) -> dict[str, Any]:
        nonlocal most, seen
        size, out = features["input_ids"].numel(), forward(features, **more)
        seen += size
        if torch.is_grad_enabled():
            mark = len(counts)
            counts.append(size)
            alive.add(mark)
            most = max(most, sum(counts[one] for one in alive))
            out["sentence_embedding"].grad_fn.register_hook(lambda *_: alive.discard(mark))
        return out

    counts: list[int] = []
    made = TrainingSet.of(TRIPLES, {}, model.tokenizer, recipe())
    batch = feature(made, range(3))
    model.forward = counted
    try:
        whole = int(batch["attention_mask"].sum())
        for budget in (40, 80, 1_000):
            most = seen = 0
            Contrast(model, Loss(), budget)([dict(batch)]).backward()
            assert 0 < most <= budget
            assert (seen < 1.5 * whole) == (budget == 1_000)  # once where all fits, nearly twice where little does
    finally:
        del model.forward


def test_two_batches_that_are_accumulated_stay_apart(model: SentenceTransformer) -> None:
    """Accumulation adds gradients and never enlarges the contrast: each row sees the documents of its own two."""
    made = TrainingSet.of(PAIRS, {}, model.tokenizer, recipe())
    contrast = Contrast(model, Loss(), 64)
    apart = [gradient(model, contrast([feature(made, rows)])) for rows in ((0, 1), (2, 3))]
    whole = gradient(model, contrast([feature(made, range(4))]))
    model.zero_grad()
    for rows in ((0, 1), (2, 3)):
        (contrast([feature(made, rows)]) / 2).backward()
    added = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    size = float(added.abs().max())
    assert torch.allclose(added, (apart[0] + apart[1]) / 2, atol=1e-5 * size)
    assert not torch.allclose(added, whole, atol=1e-2 * size)


def test_padding_on_the_left_is_cut_on_the_left(tmp_path: Path) -> None:
    made = TrainingSet.of(TRIPLES, {}, tiny(tmp_path / "qwen", family=QWEN).tokenizer, recipe())
    contrast = Contrast(tiny(tmp_path / "model"), Loss(), 40)
    batch = feature(made, range(3))
    texts = {name: batch[name] for name in ("input_ids", "attention_mask")}
    pieces = contrast._pieces(texts)
    assert len(pieces) > 1
    position = 0
    for piece in pieces:
        for ids, mask in zip(piece["input_ids"], piece["attention_mask"], strict=True):
            whole = batch["input_ids"][position][batch["attention_mask"][position].bool()]
            assert ids[mask.bool()].tolist() == whole.tolist()
            position += 1
        assert bool(piece["attention_mask"][0].all())
    assert position == 12


def test_without_a_gradient_it_is_the_same_number(model: SentenceTransformer) -> None:
    with torch.no_grad():
        found = ours(model, TRIPLES)
    assert not found.requires_grad
    assert found.item() == pytest.approx(float(ours(model, TRIPLES)), abs=1e-6)


def test_a_pooling_without_the_prefix_is_refused(tmp_path: Path) -> None:
    model = tiny(tmp_path / "model")
    model[1].include_prompt = False
    with pytest.raises(UserError, match="include_prompt = false"):
        Contrast(model, Loss(), 100)


def test_the_trainer_takes_it_as_it_is(tmp_path: Path) -> None:
    """The collator's tensors arrive as one feature, and a step of sentence-transformers' trainer is our gradient."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    model = tiny(tmp_path / "model")
    made = TrainingSet.of(RAGGED, {}, model.tokenizer, recipe())
    before = float(Contrast(model, Loss(), 64)([feature(made, range(3))]))
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=3, logging_steps=1, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True, learning_rate=1e-3,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model, arguments, made.dataset, loss=Contrast(model, Loss(), 64), data_collator=made
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[0] == pytest.approx(before, abs=1e-3)
    assert losses[1] < losses[0]
