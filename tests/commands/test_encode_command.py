"""`obliq encode`: what is kept and why it was not there, what it would cost, and how it is listed and removed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from obliq_eval.catalogue import Origin
from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_models import stores
from obliq_models.commands.encode import duration
from obliq_models.commands.options import size
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.engines import PoolEngine, RayEngine
from obliq_models.estimate import MOST, WARM_UP, estimate
from obliq_models.loading import use_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

RUNNER = CliRunner()


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(write_task: Callable[..., Path]) -> Path:
    """Three documents of two texts, one longer than the model reads; one judged query and one that is not."""
    corpus = {"1": "a small cat", "2": "word " * 400, "3": "a small cat"}
    return write_task(corpus, {"q": "kitten", "unjudged": "dog"}, {"q": {"1": 1}})


def test_an_evaluation_finds_what_was_encoded_before(folder: Path, tmp_path: Path) -> None:
    done = run("encode", "--data", folder, "-m", "minilm", "--json")
    assert done.exit_code == 0, done.stderr
    documents, queries = json.loads(done.stdout)
    assert (documents["role"], documents["texts"], documents["distinct"], documents["encoded"]) == ("document", 3, 2, 2)
    assert documents["counts"]["truncated document texts"] == 1
    assert documents["counts"]["lost document tokens"] == 402 - 256  # the words and two special tokens
    assert (queries["role"], queries["texts"], queries["encoded"]) == ("query", 1, 1)
    assert "no vectors for this yet: none are kept at all" in done.stderr
    assert 'role ("document", not "query")' in done.stderr
    before = {store.name for store in stores.stored()}
    evaluated = run("run", "--data", folder, "-m", "minilm", "--output-folder", tmp_path / "results", "--json")
    assert evaluated.exit_code == 0, evaluated.stderr
    assert {store.name for store in stores.stored()} == before
    again = run("encode", folder, "-m", "minilm", "--role", "documents", "--json")
    assert [found["encoded"] for found in json.loads(again.stdout)] == [0]
    assert "no vectors" not in again.stderr


def test_another_storage_is_kept_apart_and_said(folder: Path) -> None:
    done = run("encode", folder, "-m", "minilm", "--role", "queries", "--storage", "bfloat16")
    assert done.exit_code == 0, done.stderr
    assert "`obliq run` does not find those in bfloat16" in done.stderr
    [store] = stores.stored()
    assert (store.storage, store.texts, store.key["role"]) == ("bfloat16", 1, "query")


def test_an_estimate_keeps_nothing(folder: Path) -> None:
    done = run("encode", folder, "-m", "minilm", "--estimate", "--json")
    assert done.exit_code == 0, done.stderr
    documents, queries = json.loads(done.stdout)
    assert (documents["texts"], documents["distinct"], documents["sample"]) == (3, 2, 2)
    assert (documents["tokens"], documents["truncated"], documents["lost"]) == (5 + 256, 1, 146)
    assert documents["bytes"] == 2 * 384 * 4 + 3 * 4
    assert documents["seconds"] > 0
    assert queries["texts"] == 1
    assert stores.stored() == []
    assert "all of them" in run("encode", folder, "-m", "minilm", "--estimate").stdout


class Letters(Encoder):
    """Reads 10 letters, each a token; counts what it is given."""

    def __init__(self) -> None:
        super().__init__("org/letters", "1", 2)
        self.batches: list[int] = []

    def settings(self, _: str) -> Mapping[str, Any]:
        return {}

    def run(self, texts: Sequence[str], *_: str) -> Encoded:
        self.batches.append(len(texts))
        lengths = [len(text) for text in texts]
        cut = [length - 10 for length in lengths if length > 10]
        return Encoded(np.zeros((len(texts), 2), np.float32), sum(min(n, 10) for n in lengths), len(cut), sum(cut))


def test_the_sample_is_spread_over_the_lengths() -> None:
    """Texts of 1 to 20 letters, every one twice: what is estimated from 512 is near to what is counted over all."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    distinct = list(dict.fromkeys((letters[n % 26] + letters[n // 26 % 26] * 20)[: n % 20 + 1] for n in range(10_000)))
    encoder = Letters()
    found = estimate(encoder, distinct * 2, "document", storage="float16")
    assert encoder.batches == [WARM_UP, 1, MOST]
    assert (found.texts, found.distinct, found.sample) == (2 * len(distinct), len(distinct), MOST + 1)
    exact = sum(min(len(text), 10) for text in distinct)
    assert found.tokens == pytest.approx(exact, rel=0.02)
    assert found.truncated == pytest.approx(sum(len(text) > 10 for text in distinct), rel=0.02)
    assert found.bytes == len(distinct) * 2 * 2 + 2 * len(distinct) * 4


def test_one_text_that_is_cut_among_thousands_is_told() -> None:
    """The sample of 512 misses it: it is encoded besides. 2,999 texts of 4 letters, one of 13, of which 10 are read."""
    found = estimate(Letters(), [f"{n:04}" for n in range(2_999)] + ["x" * 13], "document")
    assert (found.tokens, found.truncated, found.lost) == (2_999 * 4 + 10, 1, 3)
    alone = estimate(Letters(), ["x" * 13], "document")
    assert (alone.sample, alone.tokens, alone.truncated, alone.lost) == (1, 10, 1, 3)
    none = estimate(Letters(), [], "document")
    assert (none.sample, none.tokens, none.truncated) == (0, 0, 0)


def test_what_is_kept_is_listed_and_removed(folder: Path) -> None:
    assert "holds no vectors" in run("encode", "--list").stdout
    assert json.loads(run("encode", "--list", "--json").stdout) == []
    run("encode", folder, "-m", "minilm")
    listed = json.loads(run("encode", "--list", "--json").stdout)
    assert sorted((one["role"], one["texts"], one["complete"]) for one in listed) == [
        ("document", 3, True),
        ("query", 1, True),
    ]
    shard = next(one for one in listed if one["role"] == "document")
    for file in stores.root().glob(f"{shard['key']}/shard-*.json"):
        file.unlink()
    again = {one["key"]: one["complete"] for one in json.loads(run("encode", "--list", "--json").stdout)}
    assert again[shard["key"]] is False
    assert shard["key"] in run("encode", "--list").stdout
    wrong = run("encode", "--remove", shard["key"] + "0")
    assert (wrong.exit_code, f'did you mean "{shard["key"]}"?' in wrong.stderr) == (2, True)
    assert "freed" in run("encode", "--remove", shard["key"]).stdout
    assert [store.key["role"] for store in stores.stored()] == ["query"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say what to encode and with which model"),
        (("toy",), "say what to encode and with which model"),
        (("toy", "--data", "toy", "-m", "minilm"), "named twice"),
        (("toy", "-m", "bm25"), "nothing to encode"),
        (("toy", "-m", "minilm", "--role", "querys"), 'did you mean "queries"?'),
        (("toy", "-m", "minilm", "--storage", "int8"), "not one of float32, float16, bfloat16"),
        (("nowhere", "-m", "minilm"), "neither a task nor a folder nor a file"),
        (("--list", "-m", "minilm"), "leave out model"),
        (("--remove", "x"), "no vectors are kept under the key 'x'"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: tuple[str, ...], told: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    done = run("encode", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr


@dataclass
class Elsewhere:
    """A model that another process can build."""

    origin: Origin | None
    engine: object = None


def test_an_engine_is_given_to_a_model_that_can_use_one() -> None:
    model = Elsewhere(Origin("module:load", "org/model", {}))
    use_engine(model, "local")
    assert model.engine is None
    use_engine(model, "pool", 3)
    assert isinstance(model.engine, PoolEngine)
    assert (model.engine.origin, len(model.engine.devices)) == (model.origin, 3)
    use_engine(model, "ray", 2)
    assert isinstance(model.engine, RayEngine)
    assert model.engine.workers == 2


@pytest.mark.parametrize(
    ("device", "gpus", "workers", "places"),
    [
        (None, 0, None, ["cpu"] * 2),
        (None, 2, 3, ["cuda:0", "cuda:1", "cuda:0"]),
        (None, 3, None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda", 2, None, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, 2, ["cuda:1"] * 2),
        ("cpu", 2, 3, ["cpu"] * 3),
        ("cpu", 2, None, ["cpu"] * 2),
    ],
)
def test_a_pool_keeps_to_the_device_that_is_named(
    device: str | None, gpus: int, workers: int | None, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    model = Elsewhere(Origin("module:load", "org/model", {} if device is None else {"device": device}))
    use_engine(model, "pool", workers)
    assert isinstance(model.engine, PoolEngine)
    assert model.engine.devices == places


@pytest.mark.parametrize("model", [Elsewhere(None), object()])
def test_a_model_that_cannot_use_an_engine_is_refused(model: object) -> None:
    with pytest.raises(UserError, match="leave --engine pool out"):
        use_engine(model, "pool")


def test_an_evaluation_takes_an_engine_too(folder: Path, tmp_path: Path) -> None:
    done = run("run", "--data", folder, "-m", "bm25", "--engine", "pool", "--output-folder", tmp_path / "results")
    assert done.exit_code == 2
    assert "obliq/bm25 does nothing that other processes could do for it" in done.stderr


def test_sizes_and_times_are_for_people() -> None:
    assert [size(n) for n in (0, 999, 1_500, 2_300_000, 3.1e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 KB",
        "2.3 MB",
        "3.1 TB",
    ]
    assert [duration(s) for s in (0.4, 59, 75, 7_260)] == ["under 1 s", "59 s", "1 min 15 s", "2 h 1 min"]
