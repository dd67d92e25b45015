"""`obliq rerank`, `obliq policy`, `obliq prompts`, against judges on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.cli import app
from obliq_eval.data.sources import load
from obliq_eval.demo.llm_server import MODEL, LlmServer
from obliq_eval.demo.personalities import Answer, Asked, malformed, perfect, rate_limited
from obliq_eval.metrics import score
from obliq_eval.records import Run
from obliq_eval.run_files import Form, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CORPUS = {f"d{number}": f"the whole text of document number {number:02d}, no more" for number in range(30)}
QUERIES = {f"q{number}": f"a query of some length, number {number:02d}, asked once" for number in range(10)}
GOLD = {f"q{number}": {f"d{12 + number}": 1} for number in range(10)}
"""Each query's answer stands in place 13 to 22 of the run."""


def judge() -> Any:
    return perfect({QUERIES[q]: [CORPUS[d] for d in row] for q, row in GOLD.items()})


@pytest.fixture
def folder(write_task: Callable[..., Path]) -> Path:
    return write_task(CORPUS, QUERIES, GOLD)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "first stage.trec"
    write_run(Run.from_lists({query: list(CORPUS) for query in QUERIES}), path, Form.TREC)
    return path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LlmServer]:
    monkeypatch.chdir(tmp_path)
    with LlmServer(judge()) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OBLIQ_LLM", MODEL)
        yield running


def obliq(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_an_estimate_makes_no_call_and_says_what_is_stored(folder: Path, run: Path, server: LlmServer) -> None:
    """30 documents: rounds of 5, 1, 1, 1 calls; ten queries, two tournaments: 160 calls. A listwise call each: 10."""
    told = obliq("rerank", run, "-t", folder, "-r", "tourrank-y2", "--estimate", "--rate", 4, "--json")
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout).values()
    assert (found["calls"], found["stored"], found["seconds"], found["money"]) == (160, 0, 40.0, None)
    assert server.bodies == []
    assert obliq("rerank", run, "-t", folder, "-r", "listwise").exit_code == 0
    assert len(server.bodies) == 10
    told = obliq("rerank", run, "-t", folder, "-r", "listwise", "--estimate", "--json")
    (found,) = json.loads(told.stdout).values()
    assert (found["calls"], found["stored"]) == (0, 10)
    assert len(server.bodies) == 10


def test_money_is_told_by_the_users_prices(folder: Path, run: Path, server: LlmServer, tmp_path: Path) -> None:
    """Ten answers of 100 tokens at 10 EUR a million, prompts free: .01 EUR."""
    (tmp_path / "p.toml").write_text(
        f'currency = "EUR"\ndate = 2026-11-30\n[models."{MODEL}"]\ninput = 0.0\noutput = 10.0\n'
    )
    options = ("--estimate", "--prices", tmp_path / "p.toml", "--answer-tokens", 100)
    told = obliq("rerank", run, "-t", folder, "-r", "listwise", *options)
    assert told.exit_code == 0, told.output
    assert "0.01 EUR, prices of 2026-11-30" in told.stdout


def test_a_run_is_reranked_stored_and_costs_nothing_again(folder: Path, run: Path, server: LlmServer) -> None:
    """Of places 13 to 22, the first 20 hold eight: NDCG@10 .8, and nothing before; Recall@100 as it was."""
    done = obliq("rerank", run, "-t", folder, "-r", "listwise", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["before"]["gold"]["ndcg@10"] == 0.0
    assert found["after"]["gold"]["ndcg@10"] == pytest.approx(0.8)
    assert (found["failed_share"], found["calls_per_query"]) == (0.0, 1.0)
    stored = runs.load(found["run"])
    assert stored.manifest is not None
    settings = stored.manifest.model.settings
    assert stored.manifest.model.name == "local/first-stage-then-listwise-k20"
    assert (settings["k"], settings["prompt"], settings["llm"]["model"]) == (20, "listwise", MODEL)
    assert settings["first"]["run"] == str(run)
    again = obliq("rerank", run, "-t", folder, "-r", "listwise", "--replay", "--json")
    assert json.loads(again.stdout)["run"] == found["run"]
    assert len(server.bodies) == 10
    other = obliq("rerank", run, "-t", folder, "-r", "listwise-k10", "--replay")
    assert other.exit_code == 2
    assert "no stored answer" in other.stderr
    costs = obliq("analyze", "cost", found["run"], "-t", folder, "--json")
    stages = next(iter(json.loads(costs.stdout)["results"].values()))
    assert [(stage["name"], stage["calls"]) for stage in stages if stage["calls"]] == [("listwise-k20", 10)]


def test_a_sweep_over_tournaments_costs_the_largest_one(
    folder: Path, run: Path, server: LlmServer, tmp_path: Path
) -> None:
    done = obliq(
        "rerank", run, "-t", folder, "--sweep", "y=1,2", "--sweep", "k=10,30", "--plot", tmp_path / "s.svg", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    points = json.loads(done.stdout)
    assert [(p["name"], p["calls"]) for p in points] == [
        (None, 0.0), ("tourrank-y1", 8.0), ("tourrank-y2", 16.0), ("listwise-k10", 1.0), ("listwise-k30", 1.0),
    ]  # fmt: skip
    assert len(server.bodies) == 160 + 2 * 10
    quality = {p["name"]: p["quality"]["gold"] for p in points}
    assert quality[None] == quality["listwise-k10"] == 0.0  # the answer stands below place 10
    assert quality["listwise-k30"] == 1.0
    assert (tmp_path / "s.svg").read_text().lstrip().startswith("<?xml")
    for point in points[1:]:
        assert score(runs.load(point["run_id"]).read(), load(folder).gold, ["ndcg@10"]).means()[
            "ndcg@10"
        ] == pytest.approx(point["quality"]["gold"])


def test_a_sweep_of_one_call_leaves_the_moving_window_behind(folder: Path, run: Path, server: LlmServer) -> None:
    """A window of 10 over 30 documents moves; one call over 5 has neither stride nor pool, and says so in its name."""
    done = obliq("rerank", run, "-t", folder, "-r", "listwise-k10-s5-p30", "--sweep", "k=5", "--json")
    assert [point["name"] for point in json.loads(done.stdout)] == [None, "listwise-k5"]


def test_every_run_of_a_sweep_says_what_failed(folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten queries one gets no answer: 8 of 80 questions at y = 1, 16 of 160 at y = 2."""
    knows = judge()

    def play(asked: Asked) -> Answer:
        return Answer("no") if QUERIES["q3"] in asked.prompt else knows(asked)

    with LlmServer(play) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OBLIQ_LLM", MODEL)
        done = obliq("rerank", run, "-t", folder, "--sweep", "y=1,2", "--failures", 0.1, "--json")
    assert done.exit_code == 0, done.output
    for point, questions in zip(json.loads(done.stdout)[1:], (80, 160), strict=True):
        counts = runs.load(point["run_id"]).manifest.counts  # type: ignore[union-attr]
        assert counts[f"{point['name']}: questions"] == questions
        assert counts[f"{point['name']}: questions without a usable answer"] == questions // 10


def test_a_malformed_talker_gives_no_run(folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LlmServer(malformed()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OBLIQ_LLM", MODEL)
        done = obliq("rerank", run, "-t", folder, "-r", "tourrank-y1")
    assert done.exit_code == 2
    assert "brought no usable answer" in done.stderr
    assert runs.scan() == ([], [])


def test_refusals_are_waited_for_and_counted(folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LlmServer(rate_limited(judge(), every=4, retry_after="0")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OBLIQ_LLM", MODEL)
        done = obliq("rerank", run, "-t", folder, "-r", "listwise", "--json")
    found = json.loads(done.stdout)
    assert found["after"]["gold"]["ndcg@10"] == pytest.approx(0.8)
    assert found["counts"]["listwise-k20: repeated calls"] > 0


def test_a_limit_stops_before_it_is_passed_and_the_next_run_goes_on(folder: Path, run: Path, server: LlmServer) -> None:
    done = obliq("rerank", run, "-t", folder, "-r", "listwise", "--limit-calls", 6)
    assert done.exit_code == 2
    assert "the budget of 6 calls" in done.stderr
    assert len(server.bodies) == 6
    assert runs.scan() == ([], [])
    assert obliq("rerank", run, "-t", folder, "-r", "listwise", "--limit-calls", 4).exit_code == 0
    assert len(server.bodies) == 10


def test_a_policy_is_chosen_and_used(folder: Path, run: Path, server: LlmServer, tmp_path: Path) -> None:
    done = obliq(
        "policy", "select", run, "-t", folder, "--candidates", "identity,listwise-k10,listwise-k30", "-o",
        tmp_path / "mine.toml", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["tasks"] == {"toy": {"reranker": "listwise", "k": 30, "stride": 0, "document_tokens": 1024}}
    tried = told["candidates"]["toy"]
    assert {name: one["dev"] for name, one in tried.items()} == {
        "identity": 0.0,
        "listwise-k10": 0.0,
        "listwise-k30": 1.0,
    }
    assert tried["listwise-k30"]["test"] == 1.0
    used = obliq("rerank", run, "-t", folder, "--policy", tmp_path / "mine.toml", "--json")
    assert json.loads(used.stdout)["model"] == f"local/first-stage-then-policy-{told['content'][:8]}"
    shown = obliq("policy", "show", tmp_path / "mine.toml")
    assert "listwise-k30" in shown.stdout
    assert "identity 0.000" in shown.stdout


def test_stored_runs_are_candidates(folder: Path, run: Path, server: LlmServer, tmp_path: Path) -> None:
    """Two reranked runs are in the store: the choice among them and the first stage asks nothing."""
    names = [
        json.loads(obliq("rerank", run, "-t", folder, "-r", name, "--json").stdout)["run"]
        for name in ("listwise-k10", "listwise-k30")
    ]
    asked = len(server.bodies)
    tasks = [part for _ in range(3) for part in ("-t", folder)]
    done = obliq("policy", "select", run, *names, *tasks, "-o", tmp_path / "mine.toml", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tasks"]["toy"]["k"] == 30
    assert len(server.bodies) == asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say how to rerank"),
        (["-r", "listwise", "--policy", "paper"], "not both"),
        (["--policy", "paper", "--y", 3], "leave --y out"),
        (["-r", "listwise", "--y", 3], "y means nothing for listwise"),
        (["-r", "listwise", "--plot", "x.svg"], "--plot draws a sweep"),
        (["--sweep", "z=1"], "neither y=1,2,5"),
        (["--sweep", "y=0,a"], "'0' is no whole number from 1 to 100"),
        (["--sweep", "y=99999999999"], "is no whole number from 1 to 100"),
        (["--sweep", "y=1", "--sweep", "k=5", "--pool", 9], "--pool is for one of the rerankers of these sweeps"),
        (["--sweep", "k=5", "--seed", 9], "seed means nothing for listwise"),
        (["-r", "tourank"], 'did you mean "tourrank"'),
        (["-r", "listwise", "--prompt", "tourrank"], "asks for a selection"),
    ],
)
def test_what_cannot_be_done_is_told(
    arguments: list[object], message: str, folder: Path, run: Path, server: LlmServer
) -> None:
    done = obliq("rerank", run, "-t", folder, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert server.bodies == []


def test_without_a_language_model_it_is_said_how_to_name_one(folder: Path, run: Path, monkeypatch: Any) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OBLIQ_LLM"):
        monkeypatch.delenv(name, raising=False)
    done = obliq("rerank", run, "-t", folder, "-r", "listwise")
    assert done.exit_code == 2
    assert "`obliq demo llm`" in done.stderr
    told = obliq("rerank", run, "-t", folder, "-r", "listwise", "--estimate")  # needs no model
    assert told.exit_code == 0, told.output
    assert "all are counted" in told.stdout
    file = obliq("rerank", run, "-r", "listwise")
    assert "does not say what it answers: give -t TASK" in file.stderr


def test_prompts_are_listed_and_shown() -> None:
    listed = obliq("prompts", "--json")
    assert "listwise-writing" in {row["name"] for row in json.loads(listed.stdout)}
    shown = obliq("prompts", "show", "tourrank")
    for part in ("[system]", "{material}", '"selection"', "[schema, for an answer of 3 documents]"):
        assert part in shown.stdout
    assert 'did you mean "tourrank"' in obliq("prompts", "show", "tourank").stderr
