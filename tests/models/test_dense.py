"""Dense retrieval with tiny models of the real architecture."""

from __future__ import annotations

import json
import shutil
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from obliq_eval.errors import UserError
from obliq_models.embeddings import embed
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.retrievers import dense

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import datasets
    import torch

    from obliq_models.encoders.base import Role
    from obliq_models.engines import Job

    Table = Callable[..., datasets.Dataset]
    Tiny = Callable[..., Path]

SHORT = "the cat sat"
LONG = "the quiet old harbour " * 8
MIXED = [SHORT, LONG, "dogs", LONG[:40], "a mat"]


class Given(Encoder):
    """Texts are numbers, and a vector of one dimension holds its text's; a query's is 1."""

    def __init__(self, batch_size: int | None = None) -> None:
        super().__init__("some/numbers", "1", 1)
        self.batch_size = batch_size

    def settings(self, role: Role) -> dict[str, Any]:  # noqa: ARG002 -- nothing is set
        return {}

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:  # noqa: ARG002 -- as above
        values = [1.0 if role == "query" else float(text) for text in texts]
        return Encoded(np.array(values, np.float32)[:, None], tokens=len(texts), cut=1, lost=2)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_alone_and_batched_are_the_same(tiny_model: Tiny, causal: bool, padding: str, pooling: str) -> None:
    model = dense.load("tiny", path=str(tiny_model(causal=causal, padding=padding)), pooling=pooling)
    together = model.encode(MIXED, "document")
    alone = np.concatenate([model.encode([text], "document") for text in MIXED])
    assert np.einsum("ij,ij->i", together, alone).min() >= 0.9999
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def arrivals(model: dense.DenseRetriever) -> list[str]:
    """Return a list that receives every text as it reaches the network, decoded from its tokens."""
    seen: list[str] = []
    network: Any = model.encoder
    tokenizer = network.model.tokenizer

    def record(_: Any, args: tuple[dict[str, torch.Tensor]]) -> None:
        seen.extend(tokenizer.decode(ids, skip_special_tokens=True) for ids in args[0]["input_ids"])

    network.model[0].register_forward_pre_hook(record)
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
        ({"instructions": {"Toy": "Look: "}, "task_prompt": True}, "Look: cat", "cat"),
        ({"instructions": {"Toy": "Look: "}}, "Look: cat", "cat"),
        ({"instructions": {"Toy": ""}, "task_prompt": True}, "cat", "cat"),
        ({"instructions": {"Another": "Look: "}, "task_prompt": True}, "Find it: cat", "cat"),
        ({"instructions": {"Another": "Look: "}}, "cat", "cat"),
    ],
)
def test_each_configured_part_arrives_once_and_nothing_else(
    tiny_model: Tiny,
    table: Table,
    settings: dict[str, Any],
    query: str,
    document: str,
) -> None:
    folder = tiny_model()
    write_prompts(folder, {"style": "Style. "}, default="style")  # what nobody configured here must not arrive
    model = dense.load("tiny", path=str(folder), **settings)
    seen = arrivals(model)
    task: Any = SimpleNamespace(name="Toy", prompt={"query": "Find it: "})
    model.index(table({"a": "cat"}), task_metadata=task)
    model.search(table({"q": "cat"}), top_k=1, task_metadata=task)
    assert seen == [document, query]


def write_prompts(folder: Path, prompts: dict[str, str], default: str | None = None) -> None:
    """Make a folder one of sentence-transformers', with a table of prompts."""
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(folder), device="cpu").save(str(folder))
    config = folder / "config_sentence_transformers.json"
    content = json.loads(config.read_text())
    config.write_text(json.dumps({**content, "prompts": prompts, "default_prompt_name": default}))


def test_a_prompt_of_one_text_is_for_queries(tiny_model: Tiny) -> None:
    model = dense.load("tiny", path=str(tiny_model()), task_prompt=True)
    model.task = SimpleNamespace(name="Toy", prompt="Find it: ")  # type: ignore[assignment]
    assert (model.instruction("query"), model.instruction("document")) == ("Find it: ", "")
    model.task = SimpleNamespace(name="Toy", prompt=None)  # type: ignore[assignment]
    assert model.instruction("query") == ""


def test_cut_texts_are_counted_and_told(tiny_model: Tiny, table: Table, caplog: pytest.LogCaptureFixture) -> None:
    model = dense.load("tiny", path=str(tiny_model()), query_length=4, document_length=8)
    tokens = len(model.encoder.model.tokenizer(LONG.strip())["input_ids"])  # type: ignore[attr-defined]
    assert tokens > 8
    model.index(table({"a": LONG, "b": "a"}))
    model.search(table({"q": "a"}), top_k=1)
    assert model.counts["truncated document texts"] == 1
    assert model.counts["lost document tokens"] == tokens - 8
    assert model.counts["document tokens"] == 8 + 2  # "<s> a"
    assert (model.counts["truncated query texts"], model.counts["lost query tokens"]) == (0, 0)
    assert f"1 of 2 distinct document texts were cut, {tokens - 8} tokens of them not read" in caplog.text
    with pytest.raises(UserError, match="document_length is 65, but the model has positions for 64"):
        dense.load("tiny", path=str(tiny_model()), document_length=65)


def test_search_equals_a_slow_masked_reference(tiny_model: Tiny, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "embed", partial(embed, shard=3))
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
    model = dense.DenseRetriever(Given())
    model.index(table({"x1": ".9", "x2": ".8", "g": ".7", "n": ".1"}))
    assert list(model.search(table({"q": "?"}), top_k=2)["q"]) == ["x1", "x2"]
    assert list(model.search(table({"q": "?"}, excluded={"q": ["x1", "x2"]}), top_k=2)["q"]) == ["g", "n"]


def test_storage_rounds_as_it_says(table: Table) -> None:
    """float16 has eleven bits: 2049 lies between 2048 and 2050, and the even one is taken."""
    model = dense.DenseRetriever(Given(), storage="float16")
    model.index(table({"a": "2049", "b": "2051"}))
    assert model.search(table({"q": "?"}), top_k=2)["q"] == {"b": 2052.0, "a": 2048.0}


def test_documents_go_through_the_engine_and_queries_do_not(table: Table) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.roles: list[str] = []

        def encode(self, shards: Any, job: Job) -> Any:
            self.roles.append(job.key["role"])
            return ((number, job.encode(Given(), texts)) for number, texts in shards)

    engine = Recorder()
    model = dense.DenseRetriever(Given(), engine=engine)
    model.index(table({"a": ".5"}))
    model.search(table({"q": "?"}), top_k=1)
    assert engine.roles == ["document"]


@pytest.mark.parametrize(("told", "held"), [({}, 7), ({"batch_size": 32}, 7), ({"batch_size": 5}, 5)])
def test_a_batch_size_of_ones_own_bounds_the_encoders(table: Table, told: dict[str, Any], held: int) -> None:
    """32 is what mteb says where nobody has said anything."""
    encoder = Given(batch_size=7)
    dense.DenseRetriever(encoder).index(table({"a": ".5"}), encode_kwargs=told)
    assert encoder.batch_size == held


def test_nothing_is_scored_before_it_is_indexed() -> None:
    with pytest.raises(UserError, match="has indexed no documents"):
        list(dense.DenseRetriever(Given()).score(["?"]))


def test_dtype_is_a_setting(tiny_model: Tiny) -> None:
    folder = str(tiny_model())
    half = dense.load("tiny", path=folder, dtype="bfloat16", attn_implementation="eager")
    assert (half.encoder.settings("query")["dtype"], half.encoder.settings("query")["attention"]) == (
        "bfloat16",
        "eager",
    )
    assert half.encode([SHORT], "query").dtype == np.float32
    with pytest.raises(UserError, match="dtype is 'bfloat61', not one of float32, bfloat16, float16; did you mean"):
        dense.load("tiny", path=folder, dtype="bfloat61")


def test_a_tokenizer_without_a_padding_token_is_refused(tiny_model: Tiny) -> None:
    folder = tiny_model()
    config = folder / "tokenizer_config.json"
    content = json.loads(config.read_text())
    del content["pad_token"]
    config.write_text(json.dumps(content))
    with pytest.raises(UserError, match="its tokenizer has no padding token"):
        dense.load("tiny", path=str(folder))


def test_pickled_weights_are_read_only_if_one_says_so(tiny_model: Tiny) -> None:
    import torch
    from safetensors.torch import load_file

    folder = tiny_model()
    expected = dense.load("tiny", path=str(folder)).encode([SHORT], "query")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"holds its weights only as pytorch_model\.bin.* allow_pickle = true"):
        dense.load("tiny", path=str(folder))
    assert np.array_equal(dense.load("tiny", path=str(folder), allow_pickle=True).encode([SHORT], "query"), expected)


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path, tiny_model: Tiny) -> None:
    folder = tiny_model()
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(UserError, match="some/name: cannot load a model from") as caught:
        dense.load("some/name", path=str(broken))
    assert "\n" not in str(caught.value)
