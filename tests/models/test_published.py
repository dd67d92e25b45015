"""The entries of published models: what the benchmark's authors set, and that it arrives."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pytest
import torch

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.demo.twins import twin_repos
from obliq_eval.errors import UserError
from obliq_models.pins import PINS
from obliq_models.retrievers import published

if TYPE_CHECKING:
    from obliq_models.retrievers.published import PublishedRetriever

QWEN = ("qwen3-embed-0.6b", "qwen3-embed-4b")
HUB = {
    "qwen3-embed-0.6b": "Qwen/Qwen3-Embedding-0.6B",
    "qwen3-embed-4b": "Qwen/Qwen3-Embedding-4B",
    "lateon": "lightonai/LateOn",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(twin_repos(tmp_path_factory.mktemp("twins"), only=["Qwen/Qwen3-Embedding-0.6B"])[0].folder)


def qwen(folder: Path, **changed: Any) -> PublishedRetriever:
    entry = resolve("qwen3-embed-0.6b")
    settings = {**entry.settings, "query_prefix": entry.query_prefix, "document_prefix": entry.document_prefix}
    return published.load(entry.name, None, **{**settings, "path": str(folder), "device": "cpu", **changed})


def at(model: Any, task: str) -> Any:
    """Return the model as it is while a task runs."""
    model.task = SimpleNamespace(name=task, prompt=None)
    return model


@pytest.mark.parametrize("alias", HUB)
def test_weights_are_those_that_mteb_evaluates(alias: str) -> None:
    """Under a name of our own, as mteb's name stands for mteb's settings."""
    import mteb

    entry, theirs = resolve(alias), mteb.get_model_meta(HUB[alias])
    assert entry.settings["repo"] == HUB[alias]
    assert entry.revision == theirs.revision == PINS[HUB[alias]]
    assert entry.n_parameters == theirs.n_parameters
    assert entry.dims == theirs.embed_dim
    assert entry.licence == theirs.license
    assert entry.name != theirs.name
    assert mteb.get_model_meta(alias).name == entry.name


@pytest.mark.parametrize("alias", [*HUB, "gemini-2-embedding"])
def test_an_entry_says_what_is_presumed_and_is_ready_for_mteb(alias: str) -> None:
    entry = resolve(alias)
    assert entry.presumed
    assert entry.paper_row == alias
    kept = json.loads(json.dumps(to_meta(entry).to_dict()))
    assert kept["name"] == entry.name


@pytest.mark.parametrize("alias", QWEN)
def test_instructions_stand_before_the_queries_of_three_tasks(alias: str) -> None:
    told = resolve(alias).settings["instructions"]
    assert set(told) == {"OBLIQ-Twitter", "OBLIQ-WildChat", "OBLIQ-Math"}
    assert all(text.startswith("Instruct: ") and text.endswith("\nQuery: ") for text in told.values())


def test_what_stands_before_a_text(folder: Path) -> None:
    """The model's own prompt, which sentence-transformers would put before every query, is left out."""
    model = qwen(folder)
    assert "Instruct" in model.encoder.model.prompts["query"]  # type: ignore[attr-defined]
    for role in ("query", "document"):
        assert model.encoder.prompt(role) == ""  # type: ignore[attr-defined]
    told = resolve("qwen3-embed-0.6b").settings["instructions"]
    assert at(model, "OBLIQ-Math").instruction("query") == told["OBLIQ-Math"]
    for task in ("OBLIQ-Congress", "OBLIQ-Writing"):
        assert at(model, task).instruction("query") == ""
    assert at(model, "OBLIQ-Math").instruction("document") == ""


def test_a_query_is_the_last_tokens_state_at_unit_length(folder: Path) -> None:
    """Computed by hand: the instruction, the text, one forward pass, the last state, in float32."""
    from transformers import AutoModel, AutoTokenizer

    model = at(qwen(folder, dtype="float32"), "OBLIQ-Math")
    text = model.instruction("query") + "a sum over triples"
    ids = AutoTokenizer.from_pretrained(folder)([text], return_tensors="pt")
    with torch.no_grad():
        last = AutoModel.from_pretrained(folder, dtype=torch.float32)(**ids).last_hidden_state[0, -1]
    found = model.encode(["a sum over triples", "another and longer text that pads the first one"], "query")
    assert np.allclose(found[0], (last / last.norm()).numpy(), atol=1e-5)


def test_half_precision_is_half_precision_on_a_cpu_as_well(folder: Path) -> None:
    """No other type takes its place; float32 has to be asked for."""
    half, full = qwen(folder), qwen(folder, dtype="float32")
    types = [{weight.dtype for weight in model.encoder.model.parameters()} for model in (half, full)]  # type: ignore[attr-defined]
    assert types == [{torch.float16}, {torch.float32}]
    assert half.encoder.key("document")["dtype"] == "float16"
    one, other = (model.encode(["a text"], "document")[0] for model in (half, full))
    assert one @ other > 0.999


def test_documents_of_one_task_have_their_own_length(folder: Path) -> None:
    model = qwen(folder)
    assert model.encoder.key("document")["length"] == model.encoder.model.max_seq_length  # type: ignore[attr-defined]
    other = model._by_task["OBLIQ-Congress"]
    assert other.key("document")["length"] == 8192
    assert other.key("query") == model.encoder.key("query")
    assert other.model is model.encoder.model  # type: ignore[attr-defined]


def test_the_length_of_the_task_is_used_and_counted(folder: Path) -> None:
    """Of two documents the second has 30 words; only where its length is 8 it is cut."""
    model = qwen(folder, document_lengths={"OBLIQ-Congress": 8})
    corpus = datasets.Dataset.from_dict({"id": ["a", "b"], "text": ["short", "word " * 30]})
    found = {}
    for task in ("OBLIQ-Congress", "OBLIQ-Writing"):
        model.index(corpus, task_metadata=SimpleNamespace(name=task, prompt=None))  # type: ignore[arg-type]
        found[task] = model.counts["truncated document texts"]
    assert found == {"OBLIQ-Congress": 1, "OBLIQ-Writing": 0}


def test_a_length_without_positions_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="positions for 32768 tokens"):
        qwen(folder, document_lengths={"OBLIQ-Congress": 32769})


def test_lateon_reads_more_of_a_document_on_writing_alone() -> None:
    entry = resolve("lateon")
    assert entry.settings["document_lengths"] == {"OBLIQ-Writing": 8192}
    assert entry.document_length is None
