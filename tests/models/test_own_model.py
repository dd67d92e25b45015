"""The model file that the README shows, from the command line to the scores of the run."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typer.testing import CliRunner

from obliq_eval import catalogue, runs
from obliq_eval.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

README = Path(__file__).parents[2] / "README.md"
CORPUS = {
    "short": "the old ships",
    "long": "dogs ran in parks while old ships sailed far away " * 100,  # beyond 1,024 tokens
    "other": "a quiet harbour",
}
QUERIES = {"q1": "ships", "q2": "the cat sat on a mat and dogs ran " * 40}  # the second beyond 256 tokens


def shown() -> str:
    section = README.read_text("utf-8").partition("## Your own model")[2]
    found = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def expected(folder: Path, spec: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return every cosine, computed with sentence-transformers alone."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    own = model.max_seq_length
    vectors: dict[str, np.ndarray] = {}
    for role, texts in (("query", QUERIES), ("document", CORPUS)):
        model.max_seq_length = spec.get(f"{role}_length", own)
        prefix = spec.get(f"{role}_prefix", "")
        vectors[role] = model.encode([prefix + text.strip() for text in texts.values()], normalize_embeddings=True)
    scores = vectors["query"] @ vectors["document"].T
    return {q: dict(zip(CORPUS, row.tolist(), strict=True)) for q, row in zip(QUERIES, scores, strict=True)}


def table(scores: Mapping[str, Mapping[str, float]]) -> np.ndarray:
    return np.array([[scores[query][document] for document in CORPUS] for query in QUERIES])


def test_every_key_that_the_readme_shows_works(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_model: Callable[..., Path],
    write_task: Callable[..., Path],
) -> None:
    monkeypatch.setattr(catalogue, "_registered", {})
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    spec = tomllib.loads(shown())
    keys = {"name", "path", "query_prefix", "document_prefix", "query_length", "document_length"}
    assert set(spec) == keys
    folder = tiny_model(name=spec["path"], length=2048)
    data = write_task(CORPUS, QUERIES, {"q1": {"short": 1}, "q2": {"other": 1}})
    (tmp_path / "my-model.toml").write_text(shown(), "utf-8")

    done = CliRunner().invoke(app, ["run", "-m", "my-model.toml", "--data", str(data), "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert found["model"] == spec["name"]
    stored = runs.load(found["run"])
    rankings = stored.read().rankings
    got = table({q: dict(zip(r.documents, r.scores.tolist(), strict=True)) for q, r in rankings.items()})

    assert np.allclose(got, table(expected(folder, spec)), atol=1e-5)
    for key in sorted(keys - {"name", "path"}):  # and none of them could be left out
        without = {name: value for name, value in spec.items() if name != key}
        assert not np.allclose(got, table(expected(folder, without)), atol=1e-4), key
    assert stored.manifest is not None
    cut = {"truncated document texts": 1, "truncated query texts": 1}
    assert {key: stored.manifest.counts[key] for key in cut} == cut
    (result,) = json.loads(Path(found["result"]).read_text("utf-8"))["scores"]["test"]
    assert (result["truncated_document_texts"], result["truncated_query_texts"]) == (1, 1)
    assert result["lost_document_tokens"] == stored.manifest.counts["lost document tokens"] > 0


def test_a_served_model_is_run_and_its_key_stands_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_task: Callable[..., Path]
) -> None:
    """The served vectors are those of words, so that the document which shares them is found first."""
    from obliq_eval.demo.embeddings_server import EmbeddingsServer

    monkeypatch.setattr(catalogue, "_registered", {})
    monkeypatch.chdir(tmp_path)
    secret = "sk-not-to-be-written-down"  # noqa: S105 -- the loopback server's
    data = write_task(
        {"a": "old ships", "b": "quiet harbour"}, {"q1": "ships", "q2": "harbour"}, {"q1": {"a": 1}, "q2": {"b": 1}}
    )
    lines = ['name = "me/served"', 'server = "openai"', 'server_model = "toy-embedding"', 'base_url_env = "MY_SERVER"']
    (tmp_path / "served.toml").write_text("\n".join([*lines, 'key_env = "MY_KEY"']), "utf-8")
    with EmbeddingsServer(key=secret) as server:
        monkeypatch.setenv("MY_SERVER", server.base_url)
        monkeypatch.setenv("MY_KEY", secret)
        done = CliRunner().invoke(app, ["run", "-m", "served.toml", "--data", str(data), "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert found["scores"]["gold"]["ndcg@10"] == 1
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert secret not in done.output
