"""Dense retrieval with tiny models of the real architecture."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from obliq_eval.errors import UserError
from obliq_models.retrievers import dense
from obliq_models.retrievers.base import Texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import datasets

    Table = Callable[..., datasets.Dataset]
    Tiny = Callable[..., Path]

SHORT = "the cat sat"
LONG = "the quiet old harbour " * 8
MIXED = [SHORT, LONG, "dogs", LONG[:40], "a mat"]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_alone_and_batched_are_the_same(tiny_model: Tiny, causal: bool, padding: str, pooling: str) -> None:
    model = dense.load("tiny", path=str(tiny_model(causal=causal, padding=padding)), pooling=pooling)
    together = model.encode(MIXED, "document")
    alone = np.concatenate([model.encode([text], "document") for text in MIXED])
    assert np.einsum("ij,ij->i", together, alone).min() >= 0.9999
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_the_two_tiny_models_differ_in_their_mask(tiny_model: Tiny) -> None:
    """The last token reaches the first token's state only where the model is bidirectional."""
    first: dict[bool, list[torch.Tensor]] = {}
    for causal in (True, False):
        model = dense.load("tiny", path=str(tiny_model(causal=causal, name=f"tiny-{causal}")))
        first[causal] = [
            model.model.encode([text], output_value="token_embeddings")[0][0] for text in ("the cat", "the mat")
        ]
    assert torch.allclose(*first[True], atol=1e-6)
    assert not torch.allclose(*first[False], atol=1e-4)


def arrivals(model: dense.DenseRetriever) -> list[str]:
    """Return a list that receives every text as it reaches the network, decoded from its tokens."""
    seen: list[str] = []
    tokenizer = model.model.tokenizer

    def record(_: Any, args: tuple[dict[str, torch.Tensor]]) -> None:
        seen.extend(tokenizer.decode(ids, skip_special_tokens=True) for ids in args[0]["input_ids"])

    model.model[0].register_forward_pre_hook(record)
    return seen


@pytest.mark.parametrize(
    ("settings", "query", "document"),
    [
        ({}, "cat", "cat"),
        ({"query_prefix": "query: ", "document_prefix": "passage: "}, "query: cat", "passage: cat"),
        ({"task_prompt": True}, "Find it: cat", "cat"),
        ({"query_prefix": "query: ", "task_prompt": True}, "query: Find it: cat", "cat"),
        ({"query_prompt_name": "style"}, "Style. cat", "cat"),
        (
            {"query_prefix": "query: ", "query_prompt_name": "style", "task_prompt": True},
            "query: Style. Find it: cat",
            "cat",
        ),
    ],
)
def test_each_configured_part_arrives_once_and_nothing_else(
    tiny_model: Tiny,
    settings: dict[str, Any],
    query: str,
    document: str,
) -> None:
    model = dense.load("tiny", path=str(tiny_model()))
    model.model.prompts = {"style": "Style. "}
    model.model.default_prompt_name = "style"  # what nobody configured here must not arrive
    model = dense.DenseRetriever(model.model, **settings)
    model.task = SimpleNamespace(prompt={"query": "Find it: "})  # type: ignore[assignment]
    seen = arrivals(model)
    model.encode(["cat"], "query")
    model.encode(["cat"], "document")
    assert seen == [query, document]


def test_the_models_own_prompts_hold_where_nothing_is_set(tiny_model: Tiny) -> None:
    sentence = dense.load("tiny", path=str(tiny_model())).model
    sentence.prompts = {"query": "q: ", "passage": "p: "}
    model = dense.DenseRetriever(sentence)
    assert (model.prompt("query"), model.prompt("document")) == ("q: ", "p: ")
    assert dense.DenseRetriever(sentence, query_prefix="").prompt("query") == ""


def test_an_unknown_prompt_name_is_refused(tiny_model: Tiny) -> None:
    sentence = dense.load("tiny", path=str(tiny_model())).model
    sentence.prompts = {"style": "Style. "}
    with pytest.raises(UserError, match="no prompt 'stile'; did you mean \"style\""):
        dense.DenseRetriever(sentence, query_prompt_name="stile")


def test_queries_and_documents_have_their_own_length(tiny_model: Tiny, table: Table) -> None:
    """A text beyond the length does not matter: the vector is that of its first tokens."""
    folder = str(tiny_model())
    model = dense.load("tiny", path=folder, query_length=4, document_length=8)
    tokens = model.model.tokenizer(LONG)["input_ids"]
    assert len(tokens) > 8
    full = dense.load("tiny", path=folder)
    for role, length in (("query", 4), ("document", 8)):
        cut = full.model.tokenizer.decode(tokens[1:length])  # the first token is <s>, which the tokenizer adds
        assert np.allclose(model.encode([LONG], role), full.encode([cut], role), atol=1e-5)  # type: ignore[arg-type]
    assert model.model.max_seq_length == full.model.max_seq_length
    model.index(table({"a": LONG, "b": "dogs"}))
    model.search(table({"q": "cat"}), top_k=1)
    assert model.counts == {"truncated document texts": 1, "truncated query texts": 0}
    with pytest.raises(UserError, match="document_length is 65, but the model has positions for 64"):
        dense.load("tiny", path=folder, document_length=65)


def test_search_equals_a_slow_masked_reference(tiny_model: Tiny, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "SHARD", 3)
    model = dense.load("tiny", path=str(tiny_model()))
    texts = {f"d{i}": f"{SHORT} {i} " * (1 + i % 3) for i in range(8)}
    model.index(table(texts))
    answers = model.search(table({"q": "old ships"}, excluded={"q": ["d1", "d3"]}), top_k=4)["q"]
    query = model.encode(["old ships"], "query")[0]
    scores = {key: float(model.encode([text.strip()], "document")[0] @ query) for key, text in texts.items()}
    kept = sorted((score, key) for key, score in scores.items() if key not in {"d1", "d3"})[::-1][:4]
    assert answers == pytest.approx({key: score for score, key in kept}, abs=1e-5)


def test_exclusions_leave_before_the_cut(table: Table) -> None:
    """x1 .9, x2 .8, gold .7; the first two are excluded and k = 2: the gold one comes first."""

    class Given(dense.DenseRetriever):
        def encode(self, texts: Any, role: Any) -> np.ndarray:
            return np.array([[1.0] if role == "query" else [float(text)] for text in texts], np.float32)

    model = Given(_Bare())  # type: ignore[arg-type]
    model.index(table({"x1": ".9", "x2": ".8", "g": ".7", "n": ".1"}))
    assert list(model.search(table({"q": "?"}), top_k=2)["q"]) == ["x1", "x2"]
    assert list(model.search(table({"q": "?"}, excluded={"q": ["x1", "x2"]}), top_k=2)["q"]) == ["g", "n"]


class _Bare:
    """The least that a sentence-transformers model has; `encode` is replaced or broken."""

    prompts: dict[str, str] = {}  # noqa: RUF012
    max_seq_length = None
    declared: int | None = None

    def __init__(self, vectors: Callable[[list[str]], np.ndarray] | None = None) -> None:
        self.vectors = vectors

    def __getitem__(self, index: int) -> object:
        return object()

    def encode_query(self, texts: list[str], **_: Any) -> np.ndarray:
        assert self.vectors is not None
        return self.vectors(texts)

    encode_document = encode_query

    def get_embedding_dimension(self) -> int | None:
        return self.declared


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (lambda texts: np.ones((len(texts) - 1, 4)), r"vectors of shape \(1, 4\) for 2 texts"),
        (lambda _: np.ones(4), r"vectors of shape \(4,\) for 2 texts"),
        (lambda _: np.array([[1.0, 2.0], [np.nan, 1.0]]), "not a number, for the document 'two'"),
    ],
)
def test_wrong_vectors_are_refused(table: Table, vectors: Callable[[list[str]], np.ndarray], message: str) -> None:
    model = dense.DenseRetriever(_Bare(vectors))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        model.fit(Texts(table({"a": "one", "b": "two"})))


def test_vectors_of_another_length_than_declared_are_refused() -> None:
    bare = _Bare(lambda texts: np.ones((len(texts), 4)))
    model = dense.DenseRetriever(bare)  # type: ignore[arg-type]
    assert model.encode(["one"], "document").shape == (1, 4)
    bare.declared = 8
    with pytest.raises(UserError, match="vectors of 4 dimensions, but declares 8"):
        model.encode(["one"], "document")


def test_a_model_of_word_vectors_has_no_length(tiny_model: Tiny, tmp_path: Path) -> None:
    """Without special tokens, the vector of a text is the mean of the vectors of its tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model() / "tokenizer.json"))
    words = StaticEmbedding(tokenizer, embedding_dim=4)
    SentenceTransformer(modules=[words]).save(str(tmp_path / "words"))
    model = dense.load("words", path=str(tmp_path / "words"), normalize=False)
    ids = tokenizer.encode(LONG, add_special_tokens=False).ids
    mean = words.embedding.weight[torch.tensor(ids)].mean(dim=0)
    assert np.allclose(model.encode([LONG], "document")[0], mean.detach().numpy(), atol=1e-6)


def test_dtype_and_normalisation_are_settings(tiny_model: Tiny) -> None:
    folder = str(tiny_model())
    half = dense.load("tiny", path=folder, dtype="bfloat16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert half.encode([SHORT], "query").dtype == np.float32
    raw = dense.load("tiny", path=folder, normalize=False).encode([SHORT], "query")
    assert not np.isclose(np.linalg.norm(raw), 1, atol=1e-2)


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path, tiny_model: Tiny) -> None:
    folder = tiny_model()
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(UserError, match="some/name: cannot load a model from") as caught:
        dense.load("some/name", path=str(broken))
    assert "\n" not in str(caught.value)
