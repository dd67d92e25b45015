"""Agents of the table over another retriever, through the run command's path, against the loopback language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import pytest

from obliq_eval import running, runs
from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.data.sources import load
from obliq_eval.demo.llm_server import LlmServer
from obliq_eval.demo.personalities import dropping, perfect
from obliq_eval.demo.toy import write_official
from obliq_eval.errors import UserError
from obliq_eval.metrics import evaluate
from obliq_models.agents.multihop import MultiHop
from obliq_models.agents.oracle import Oracle
from obliq_models.naming import find

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("openai", reason="the extra `openai` is optional")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy of Math: gold and pooled judgments, exclusions."""
    monkeypatch.chdir(tmp_path)
    write_official(tmp_path / "my-math", "analogues/math")
    return tmp_path / "my-math"


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    """A judge that knows the toy's gold documents, some of whose connections break."""
    data = load(folder)
    texts = dict(zip(data.corpus.documents["id"], data.corpus.documents["text"], strict=True))
    gold = {
        data.queries[q]: {texts[d] for d, g in data.gold.grades[q].items() if g > 0 and d in texts}
        for q in data.gold.queries
    }
    monkeypatch.setattr("obliq_models.llm.retry.Retries.base", 0.0)
    with LlmServer(dropping(perfect(gold), every=7)) as running_server:
        monkeypatch.setenv("OPENAI_BASE_URL", running_server.url)
        monkeypatch.setenv("OBLIQ_LLM", "loopback-judge")
        yield running_server


def spec(folder: Path, model: str, *lines: str, retriever: str = '"bm25"') -> str:
    path = folder.parent / "mine.toml"
    path.write_text("\n".join(['name = "mine"', f'model = "{model}"', f"retriever = {retriever}", *lines]), "utf-8")
    return str(path)


def evaluated(folder: Path, model: str, output: str = "results") -> Any:
    request = running.Request(model, folders=[folder], output=folder.parent / output)
    (task,) = running.find_tasks(request)
    loaded = running.find_model(request)
    outcome = running.evaluate(request, task, loaded)
    assert outcome.run is not None
    return outcome, runs.load(outcome.run), loaded


def reachable(folder: Path) -> dict[str, float]:
    """Return NDCG@10 of the best order of the gold documents that are in the corpus and not excluded."""
    data = load(folder)
    ids = set(data.corpus.documents["id"])
    best = {
        q: {d: float(g) for d, g in data.gold.grades[q].items() if g > 0 and d in ids - data.exclusions.get(q, set())}
        for q in data.gold.queries
    }
    panel = evaluate(best, {q: dict(data.gold.grades[q]) for q in best}, ["ndcg@10"])
    return dict(zip(panel.queries, panel.values["ndcg@10"].tolist(), strict=True))


def test_the_oracle_with_the_perfect_judge_attains_all_that_can_be_attained(folder: Path, server: LlmServer) -> None:
    outcome, stored, model = evaluated(folder, spec(folder, "oracle-tournament", "depth = 5"))
    ceiling = reachable(folder)
    assert outcome.scores["gold"]["ndcg@10"] == pytest.approx(sum(ceiling.values()) / len(ceiling))
    assert sorted(ceiling.values())[1:] == [1.0] * (len(ceiling) - 1), "one query excludes a gold document"
    assert isinstance(model, Oracle)
    assert model.judgments is None
    manifest = stored.manifest
    assert manifest is not None
    assert manifest.oracle
    assert manifest.model.settings["resolved"]["llm"]["model"] == "loopback-judge"
    assert manifest.counts["oracle: calls"] == manifest.counts["oracle-tournament: questions"]
    assert manifest.counts["oracle: repeated calls"] > 0
    data = load(folder)
    for query, ranking in stored.read().rankings.items():
        assert not set(ranking.documents) & data.exclusions.get(query, frozenset())
        judged = {d for judgments in data.judgments().values() for d in judgments.grades.get(query, ())}
        there = judged & set(data.corpus.documents["id"]) - data.exclusions.get(query, frozenset())
        assert there <= set(ranking.documents)


@pytest.mark.parametrize("alias", ["gpt-multihop", "gpt-query-rewriter"])
def test_the_other_agents_run_and_another_language_model_is_another_run(
    folder: Path, server: LlmServer, alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, stored, _ = evaluated(folder, spec(folder, alias))
    assert stored.manifest is not None
    assert not stored.manifest.oracle
    assert stored.manifest.unanswered == ()
    asked = len(server.bodies)
    again, _, _ = evaluated(folder, spec(folder, alias))
    assert again.cached
    elsewhere, _, _ = evaluated(folder, spec(folder, alias), "elsewhere")
    assert elsewhere.run == first.run
    assert len(server.bodies) == asked, "every answer came from the cache"
    monkeypatch.setenv("OBLIQ_LLM", "another-judge")
    other, _, _ = evaluated(folder, spec(folder, alias))
    assert not other.cached
    assert other.run != first.run
    assert len(server.bodies) > asked


def test_an_oracle_in_a_fusion_is_shown_nothing(folder: Path, server: LlmServer) -> None:
    spec(folder, "oracle-tournament")
    with pytest.raises(UserError, match="was shown no judgments"):
        evaluated(folder, f"fuse:bm25,{folder.parent / 'mine.toml'}")


def test_keys_of_a_model_file_reach_the_agent(folder: Path, server: LlmServer) -> None:
    given = spec(folder, "gpt-multihop", "hops = 2", "per_hop = 7", 'llm = "small"', "failures = 0.2")
    model = to_meta(find(given)).load_model()
    assert isinstance(model, MultiHop)
    assert (model.hops, model.per_hop, model.failures, model.calls()) == (2, 7, 0.2, 5)
    assert model.asking.llm.model == "small"
    assert model.settings()["retrievers"] == [["obliq/bm25", resolve("bm25").revision]]
    several = spec(folder, "oracle-tournament", "batch = 10", "promote = 2", retriever='["bm25", "stylometry"]')
    oracle = to_meta(find(several)).load_model()
    assert isinstance(oracle, Oracle)
    assert [one.alias for one in oracle.retrievers] == ["bm25", "stylometry"]
    assert oracle.calls(20) == 1 < oracle.calls(21)
    nested = spec(folder, "gpt-multihop", retriever='"fuse:bm25,stylometry"')
    assert isinstance(to_meta(find(nested)).load_model(), MultiHop)


@pytest.mark.parametrize(
    ("model", "lines", "retriever", "sentence"),
    [
        ("gpt-multihop", (), '"bm52"', "no model is called 'bm52'; did you mean \"bm25\""),
        ("gpt-multihop", (), '["bm25", "minilm"]', "searches with one retriever"),
        ("gpt-multihop", (), '"gpt-query-rewriter"', "gpt-query-rewriter is an agent itself"),
        ("gpt-multihop", (), '"mine.toml"', "searches with itself"),
        ("gpt-multihop", ('pooling = "cls"',), '"bm25"', "pooling means nothing beside model gpt-multihop"),
        ("gpt-query-rewriter", ("hops = 2",), '"bm25"', "hops means nothing beside model gpt-query-rewriter"),
        ("gpt-multihop", ("hops = 0",), '"bm25"', "hops"),
        ("bm25", ('llm = "x"',), '"bm25"', "llm means nothing beside model bm25"),
        ("oracle-tournament", ("batch = 4",), '"bm25"', "never come to an end"),
        ("oracle-tournament", ('solutions = "none.jsonl"',), '"bm25"', "cannot read .*none.jsonl"),
        ("oracle-tournament-with-solutions", (), '"bm25"', "shows solutions, and no corpus that we know holds any"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    folder: Path, server: LlmServer, model: str, lines: tuple[str, ...], retriever: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        to_meta(find(spec(folder, model, *lines, retriever=retriever))).load_model()


def test_without_a_language_model_nothing_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OBLIQ_LLM", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="a language model is needed"):
        to_meta(find(spec(folder, "gpt-multihop", retriever='"gemini-2-embedding"'))).load_model()


def test_the_entries_say_what_they_are() -> None:
    for alias in ("gpt-query-rewriter", "gpt-multihop", "oracle-tournament", "oracle-tournament-with-solutions"):
        entry = resolve(alias)
        assert entry.settings["retriever"] == "gemini-2-embedding"
        assert entry.paper_row == alias
        assert "sent to the language model's server" in entry.risk
        assert entry.summary.startswith("Oracle") == entry.risk.startswith("an oracle") == ("oracle" in alias)


def test_titles_stand_before_texts(build: Any) -> None:
    from tests.models.agents.conftest import Words

    agent = build(MultiHop, lambda _: "", Words())
    agent.index(datasets.Dataset.from_dict({"id": ["a", "b"], "title": ["T", ""], "text": ["x", "y"]}))
    assert agent.texts(["b", "a"]) == {"a": "T x", "b": "y"}
