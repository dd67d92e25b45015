"""Late interaction against the definition of MaxSim, on a tiny model of the real architecture."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import datasets
import pytest
import torch

from obliq_eval.demo.twins import twin_repos
from obliq_eval.errors import UserError
from obliq_models import search
from obliq_models.retrievers import late

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obliq_models.retrievers.late import LateRetriever

TEXTS = [
    "the old harbour lay quiet at dawn",
    "a tax return",
    "",
    "the old harbour lay quiet at dawn",  # again, as in WildChat
    "ships left the harbour before the dawn of another day, and nobody saw them go",
    "!?",
]
QUERIES = ["harbour at dawn", "taxes", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(twin_repos(tmp_path_factory.mktemp("twins"), only=["lightonai/LateOn"])[0].folder)


def retriever(folder: Path, **settings: Any) -> LateRetriever:
    return late.load("local/late", path=str(folder), device="cpu", **settings)


def corpus(texts: Sequence[str]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"id": [f"d{i:02}" for i in range(len(texts))], "text": list(texts)})


def queries(texts: Sequence[str], excluded: Sequence[Sequence[str]] | None = None) -> datasets.Dataset:
    table: dict[str, Any] = {"id": [f"q{i}" for i in range(len(texts))], "text": list(texts)}
    if excluded is not None:
        table["excluded_ids"] = [list(ids) for ids in excluded]
    return datasets.Dataset.from_dict(table)


def slow(model: LateRetriever, query: str, document: str) -> float:
    """Return MaxSim as it is defined, token by token, from the library's own vectors of the text alone."""
    tokens = model.model.encode_query(query).tolist()
    others = model.model.encode_document(document).tolist()
    return float(sum(max(sum(x * y for x, y in zip(a, b, strict=True)) for b in others) for a in tokens))


def test_scores_are_maxsim(folder: Path) -> None:
    model = retriever(folder)
    model.index(corpus(TEXTS))
    found = model.search(queries(QUERIES), top_k=10)
    for number, query in enumerate(QUERIES):
        wanted = {f"d{i:02}": slow(model, query, text) for i, text in enumerate(TEXTS)}
        assert found[f"q{number}"] == pytest.approx(wanted, abs=1e-4)


def test_equal_texts_score_equally_and_the_higher_id_comes_first(folder: Path) -> None:
    model = retriever(folder)
    model.index(corpus(TEXTS))
    best = model.search(queries(QUERIES[:1]), top_k=2)["q0"]
    assert list(best) == ["d03", "d00"]
    assert best["d03"] == best["d00"]


def test_exclusions_come_before_the_cut(folder: Path) -> None:
    model = retriever(folder)
    model.index(corpus(TEXTS))
    found = model.search(queries(QUERIES[:1], [["d00", "d03"]]), top_k=1)
    assert list(found["q0"]) == ["d04"]


def test_the_size_of_a_chunk_and_of_a_block_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = retriever(folder)
    model.index(corpus(TEXTS))
    whole = model.search(queries(QUERIES), top_k=10)
    monkeypatch.setattr(late, "CHARACTERS", 1)
    monkeypatch.setattr(search, "BLOCK", 1)
    parts = model.search(queries(QUERIES), top_k=10)
    for query, answer in whole.items():
        assert parts[query] == pytest.approx(answer, abs=1e-4)


def test_each_distinct_text_is_encoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = retriever(folder)
    seen: list[str] = []
    whole = model.model.encode_document

    def watched(texts: list[str], **more: Any) -> Any:
        seen.extend(texts)
        return whole(texts, **more)

    monkeypatch.setattr(model.model, "encode_document", watched)
    model.index(corpus(TEXTS))
    model.search(queries(QUERIES), top_k=1)
    assert sorted(seen) == sorted(set(TEXTS))


def test_lengths_are_the_models_own_the_settings_or_the_tasks(folder: Path) -> None:
    model = retriever(folder)
    assert (model.length("query"), model.length("document")) == (32, 300)
    model = retriever(folder, query_length=8, document_length=16, document_lengths={"OBLIQ-Writing": 64})
    assert (model.length("query"), model.length("document")) == (8, 16)
    model.task = SimpleNamespace(name="OBLIQ-Writing")  # type: ignore[assignment]
    assert (model.length("query"), model.length("document")) == (8, 64)
    words = "word " * 200
    assert [len(model.encode([words], role)[0]) for role in ("query", "document")] == [8, 64]


def test_what_is_cut_is_counted(folder: Path) -> None:
    """Of the query, its tokens over 8 are lost, and nothing of the documents, which have at most 64."""
    model = retriever(folder, query_length=8, document_length=64)
    long = "word " * 20
    tokens = len(model.model.tokenizer("[Q] " + long.strip())["input_ids"])
    model.index(corpus(["short", "word " * 10]))
    model.search(queries([long.strip()]), top_k=1)
    assert model.counts == {
        "truncated query texts": 1,
        "lost query tokens": tokens - 8,
        "truncated document texts": 0,
        "lost document tokens": 0,
    }


def test_a_length_without_positions_is_refused(folder: Path) -> None:
    positions = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    with pytest.raises(UserError, match=f"positions for {positions} tokens only"):
        retriever(folder, document_lengths={"OBLIQ-Writing": positions + 1})


def test_half_precision_is_told_apart(folder: Path) -> None:
    half = retriever(folder, dtype="bfloat16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    full = retriever(folder)
    one, other = (model.encode(["a text"], "document")[0] for model in (half, full))
    assert one.dtype == other.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(one, other).min() > 0.98
    assert not torch.equal(one, other)


def test_an_incomplete_model_is_refused(tmp_path: Path) -> None:
    repo = twin_repos(tmp_path, only=["lightonai/LateOn"], broken={"lightonai/LateOn": "nan"})[0]
    with pytest.raises(UserError, match="NaN or infinity"):
        retriever(Path(repo.folder))


def test_no_queries_and_no_documents(folder: Path) -> None:
    model = retriever(folder)
    model.index(corpus([]))
    assert model.search(queries(["one"]), top_k=3) == {"q0": {}}
    model.index(corpus(["one"]))
    assert model.search(queries([]), top_k=3) == {}


def test_a_multi_vector_model_is_not_pooled_into_one(tmp_path: Path) -> None:
    """Sentence-transformers would do so with a line in its log."""
    from obliq_models.retrievers import dense

    (twin,) = twin_repos(tmp_path, only=["lightonai/LateOn"])
    with pytest.raises(UserError, match="is a MultiVectorEncoder, not a model with one vector for each text"):
        dense.load("local/mine", path=str(twin.folder))
