"""`A+B`: names, revisions, and a search through mteb's own evaluation against a server on loopback."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.catalogue import ModelEntry, catalogue, resolve
from obliq_eval.cli import app
from obliq_eval.data.sources import load
from obliq_eval.demo.llm_server import MODEL, LlmServer
from obliq_eval.demo.personalities import perfect
from obliq_eval.errors import UserError
from obliq_models import naming, pipelines, policies
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.settings import LLMSettings
from obliq_models.pipelines import Pipeline, halves, is_pipeline
from obliq_models.rerankers.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CORPUS = {f"d{number}": f"a common word and the text of document number {number:02d}" for number in range(12)}
QUERIES = {f"q{number}": f"common word, asked for the {number}. time" for number in range(3)}
GOLD = {"q0": {"d7": 1}, "q1": {"d3": 1}, "q2": {"d11": 1}}
EXCLUDED = {"q0": ["d0", "d1"], "q1": ["d3"]}


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OBLIQ_LLM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(write_task: Callable[..., Path]) -> Path:
    return write_task(CORPUS, QUERIES, GOLD, exclusions=EXCLUDED)


def judge() -> Any:
    return perfect({QUERIES[q]: [CORPUS[d] for d in row] for q, row in GOLD.items()})


def test_what_is_a_pipeline(tmp_path: Path) -> None:
    assert is_pipeline("bm25+listwise")
    assert is_pipeline("fuse:bm25,minilm+tourrank")
    assert not is_pipeline("bm25")
    (tmp_path / "a+b.toml").touch()
    assert not is_pipeline(str(tmp_path / "a+b.toml"))
    (tmp_path / "c+d").mkdir()
    assert not is_pipeline(f"obliq-ir@{tmp_path / 'c+d'}")
    assert halves("a+b+c") == ("a+b", "c")
    for text in ("+listwise", "bm25+", "+"):
        with pytest.raises(UserError, match=r"write A\+B"):
            naming.find(text)


def test_a_name_says_what_a_pipeline_does(tmp_path: Path) -> None:
    assert naming.find("bm25+listwise").name == "local/bm25-then-listwise-k20"
    assert naming.find("bm25+tourrank-y2").alias == "bm25-then-tourrank-y2"
    assert naming.find("bm25+org/cross.encoder-1").alias == "bm25-then-cross.encoder-1"
    assert naming.find("bm25+identity+listwise").alias == "bm25-then-identity-then-listwise-k20"
    paper = policies.load("paper")
    policies.Policy("mine", paper.steps).write(tmp_path / "mine.toml")
    assert naming.find("bm25+mine.toml").alias == f"bm25-then-policy-{paper.content[:8]}"  # the content, not the name
    assert naming.find("bm25+paper").revision == naming.find("bm25+mine.toml").revision
    assert [entry.alias for entry in naming.origins("luar+listwise")] == ["luar"]
    with pytest.raises(UserError, match=r"no reranker and no policy is called 'listwize'; did you mean \"listwise\""):
        naming.find("bm25+listwize")


def test_the_revision_covers_everything_that_can_change_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    first, step, llm = resolve("bm25"), Step("listwise"), LLMSettings(model="m")

    def of(entry: ModelEntry = first, then: Any = step, model: LLMSettings = llm) -> str:
        return pipelines.revision_of(entry.name, entry.revision, then, model)

    changed = [
        of(entry=replace(first, revision="2")),
        of(then=Step("listwise", k=30)),
        of(then=Step("listwise", document_tokens=99)),
        of(model=replace(llm, model="other")),
        of(model=replace(llm, temperature=1.0)),
    ]
    assert len({of(), *changed}) == 6
    assert of(model=replace(llm, concurrency=3, limit_calls=9)) == of()
    assert of(then=Step(), model=replace(llm, model="other")) == of(then=Step())  # identity asks nobody
    before = naming.find("bm25+listwise").revision
    monkeypatch.setenv("OBLIQ_LLM", "another")
    assert naming.find("bm25+listwise").revision != before


def test_the_papers_system_is_the_dense_model_with_the_papers_policy() -> None:
    entry = catalogue()["obliq-ir-full"]
    dense = catalogue()["obliq-ir"]
    assert entry.paper_row == "obliq-ir-full"
    assert entry.kind == "pipeline"
    assert entry.settings["first"]["name"] == dense.name
    assert entry.settings["then"]["policy"] == policies.load("paper").table()
    assert (entry.licence, entry.base_licence, entry.risk) == (dense.licence, dense.base_licence, dense.risk)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_a_pipeline_runs_as_one_model_of_mteb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge knows the gold: d7 and d11 come first; d3 is gold for q1 and excluded, so it stays out. Mean 2/3."""
    with LlmServer(judge()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OBLIQ_LLM", MODEL)
        done = run("-m", "bm25+listwise", "--data", folder, "--json")
        assert done.exit_code == 0, done.output
        (found,) = json.loads(done.stdout)
        assert found["model"] == "local/bm25-then-listwise-k20"
        assert found["scores"]["gold"]["ndcg@10"] == pytest.approx(2 / 3)
        assert len(server.bodies) == 3  # one call for each query
        stored = runs.load(found["run"])
        answers = stored.read().rankings
        assert answers["q0"].documents[0] == "d7"
        assert not {"d0", "d1"} & set(answers["q0"].documents)
        assert "d3" not in answers["q1"].documents
        assert len(answers["q0"].documents) == 10
        shown = [body["messages"][1]["content"] for body in server.bodies]
        assert sum(CORPUS["d3"] in text for text in shown) == 2  # for q0 and q2, not for q1
        assert stored.manifest is not None
        assert stored.manifest.model.settings["llm"]["model"] == MODEL
        assert stored.manifest.counts["listwise-k20: calls"] == 3
        assert stored.manifest.counts["bm25: queries"] == 3
        assert server.url not in (stored.path / "manifest.json").read_text()

        again = run("-m", "bm25+listwise", "--data", folder, "--overwrite-strategy", "always", "--json")
        assert json.loads(again.stdout)[0]["scores"] == found["scores"]
        assert len(server.bodies) == 3  # every answer was kept


def test_a_missing_language_model_is_told_before_anything_is_indexed(folder: Path) -> None:
    done = run("-m", "bm25+listwise", "--data", folder)
    assert done.exit_code == 2
    assert "OBLIQ_LLM" in done.stderr
    assert "`obliq demo llm`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_policy_asks_for_a_language_model_where_it_needs_one(folder: Path, tmp_path: Path) -> None:
    policies.Policy("mine", {"toy": Step(), "other": Step("listwise")}).write(tmp_path / "mine.toml")
    done = run("-m", "bm25+mine.toml", "--data", folder, "--json")
    assert done.exit_code == 0, done.output
    plain = run("-m", "bm25", "--data", folder, "--json")
    assert json.loads(done.stdout)[0]["scores"] == json.loads(plain.stdout)[0]["scores"]
    wrong = run("-m", "bm25+paper", "--data", folder)
    assert wrong.exit_code == 2
    assert "the policy paper says nothing of toy" in wrong.stderr


def test_a_cross_encoder_of_mtebs_reranks(folder: Path) -> None:
    done = run("-m", "bm25+mteb/baseline-random-cross-encoder", "--data", folder, "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert found["model"] == "local/bm25-then-baseline-random-cross-encoder"
    assert found["scores"]["gold"]["recall@100"] == pytest.approx(2 / 3)
    wrong = run("-m", "bm25+bm25s/none", "--data", folder)
    assert wrong.exit_code == 2
    assert "cross-encoder 'bm25s/none' could not be loaded" in wrong.stderr


def test_the_pool_may_be_deeper_than_what_is_asked_for(folder: Path, table: Callable[..., Any]) -> None:
    """The three best are wanted; the judge finds its favourite in place 12 of the retriever's answer."""
    from obliq_models.retrievers import bm25

    data = load(folder)
    with Client(FakeBackend(lambda request: _favourite(request.messages[1][1], CORPUS["d7"]))) as client:
        pipeline = Pipeline(_named(bm25.load("obliq/bm25")), Step("listwise"), LLMSettings(model="m"), client=client)
        told: dict[str, Any] = {
            "task_metadata": _task(),
            "hf_split": "test",
            "hf_subset": "default",
            "encode_kwargs": {},
        }
        pipeline.index(data.corpus.documents, **told)
        found = pipeline.search(table({"q": "common word"}), top_k=3, **told)
    assert next(iter(found["q"])) == "d7"
    assert len(found["q"]) == 3


def _favourite(prompt: str, text: str) -> str:
    from obliq_eval.delimited import find

    shown = find(prompt)
    assert shown is not None
    return json.dumps({"ranking": [shown.documents.index(text) + 1]})


def _named(model: Any) -> Any:
    from mteb.models import ModelMeta

    model.mteb_model_meta = ModelMeta.create_empty({"name": "obliq/bm25"})
    return model


def _task() -> Any:
    from obliq_eval.tasks import MINI_TASKS

    return MINI_TASKS[0].metadata
