"""Policies: the paper's, files, and the choice on dev queries alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.data.split import dev_queries
from obliq_eval.delimited import find
from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_eval.run_files import Form, write_run
from obliq_models import policies
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.settings import LLMSettings
from obliq_models.policies import Policy
from obliq_models.policies.select import Choice, Tried, best, choose, policy
from obliq_models.rerankers.steps import Step
from obliq_models.reranking import open_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def test_the_papers_policy() -> None:
    """TourRank of five tournaments over 100 on Math, Twitter, Congress; identity on Writing, and on WildChat."""
    paper = policies.load("paper")
    tourrank = Step("tourrank", y=5, pool=100)
    wanted = {"Twitter": tourrank, "Math": tourrank, "Congress": tourrank, "Writing": Step(), "WildChat": Step()}
    assert dict(paper.steps) == {f"OBLIQ-{task}": step for task, step in wanted.items()}
    assert paper.step("OBLIQ-Mini-Math") == tourrank
    assert paper.step("OBLIQ-Mini-Writing") == Step()
    with pytest.raises(UserError, match=r'the policy paper says nothing of my-folder.*\[tasks\."my-folder"\]'):
        paper.step("my-folder")


def test_the_hash_is_of_what_a_policy_does(tmp_path: Path) -> None:
    steps = {"A": Step("tourrank"), "B": Step()}
    one = Policy("one", steps, "why")
    other = Policy("other", dict(reversed(steps.items())), dev={"A": {"queries": 3}})
    assert one.content == other.content
    assert one.content != Policy("one", {**steps, "B": Step("listwise")}).content
    assert one.content != Policy("one", {**steps, "A": Step("tourrank", y=4)}).content
    prompt = tmp_path / "own.toml"
    text = 'version = 1\npurpose = "p"\nanswer = "ranking"\nsystem = "{}"\nuser = "{{material}} {{answer}}"\n'
    hashes = []
    for words in ("a", "b", "a"):
        prompt.write_text(text.format(words))
        hashes.append(Policy("p", {"A": Step("listwise", prompt=str(prompt))}).content)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_file_says_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    steps = {'odd "task"': Step("listwise", k=7, prompt="listwise"), "B": Step("cross-encoder", model="a/b")}
    dev = {"B": {"queries": 3, "candidates": {"identity": 0.25}}}
    made = Policy("mine", steps, 'a "quoted" line\nand another', dev)
    made.write(tmp_path / "mine.toml")
    again = policies.load(str(tmp_path / "mine.toml"))
    assert again == made
    assert again.content == made.content


def test_a_prompt_file_lies_beside_its_policy(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('[tasks.A]\nreranker = "listwise"\nprompt = "own.toml"\n')
    assert policies.load(str(tmp_path / "p.toml")).steps["A"].prompt == str(tmp_path / "own.toml")


def test_what_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('tsks = 1\n[tasks.A]\nreranker = "tourank"\n[tasks.B]\nreranker = "listwise"\nk = 1\n')
    with pytest.raises(UserError) as error:
        policies.load(str(path))
    for part in ('tsks is not a key of a policy; did you mean "tasks"', 'did you mean "tourrank"', "B: k is 1"):
        assert part in str(error.value)
    path.write_text("about = 3\ndev = [1]\n[tasks]\nA = 3\n")
    with pytest.raises(UserError) as error:
        policies.load(str(path))
    for part in ("about is 3, not a text", "dev is [1], not a table", "A is 3, not a table with a reranker"):
        assert part in str(error.value)
    with pytest.raises(UserError, match="names no task"):
        policies.from_table({}, "p", "p")
    with pytest.raises(UserError, match=r'neither a policy file .* nor one of paper; did you mean "paper"'):
        policies.load("papr")
    with pytest.raises(UserError, match="cannot read"):
        policies.load(str(tmp_path / "none.toml"))


def test_of_equal_candidates_the_cheapest_is_chosen() -> None:
    dear, cheap, worse = Tried(Step("tourrank"), 0.5, 65.0), Tried(Step("listwise"), 0.5, 1.0), Tried(Step(), 0.4, 0.0)
    assert best([dear, cheap, worse]) == Step("listwise")
    assert best([worse, Tried(Step("tourrank"), 0.6, 65.0)]) == Step("tourrank")


QUERIES = [f"q{number}" for number in range(40)]
RIGHT, FIRST = "d5", "d0"


def favourite(request: Any) -> str:
    """Put document 5 first, whatever the query."""
    found = find(request.messages[1][1])
    assert found is not None
    place = next(at for at, text in enumerate(found.documents, 1) if text.endswith(RIGHT))
    return f'{{"ranking": [{place}]}}'


def select(folder: Path, runs: Path) -> Choice:
    source = open_run(str(runs), str(folder))
    with Client(FakeBackend(favourite)) as client:
        candidates = [Step(), Step("listwise", k=10)]
        return choose(source, candidates, {Step(): source.system.run}, LLMSettings(model="m"), client)


def test_judgments_of_test_queries_have_no_part_in_the_choice(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """Reranking is right on dev. On test it is right, then wrong: the same policy, the same figures of dev.

    The right document is in place 6: NDCG@10 of identity is 1 / log2(7) = .356, of the reranked run 1.
    """
    corpus = {f"d{number}": f"text of d{number}" for number in range(10)}
    dev = dev_queries("toy", QUERIES)
    assert 8 <= len(dev) < len(QUERIES)
    run = tmp_path / "run.trec"
    write_run(Run.from_lists({query: list(corpus) for query in QUERIES}), run, Form.TREC)
    choices = []
    for number, answer in enumerate((RIGHT, FIRST)):
        gold: Mapping[str, Mapping[str, int]] = {q: {RIGHT if q in dev else answer: 1} for q in QUERIES}
        folder = write_task(corpus, {q: f"text of {q}" for q in QUERIES}, gold, name=f"{number}/toy")
        choices.append(select(folder, run))
    one, other = choices
    assert one.chosen == other.chosen == Step("listwise", k=10)
    made, again = (policy("mine", [choice], "about") for choice in choices)
    assert made.content == again.content
    assert [(t.dev, t.calls) for t in one.tried] == [(t.dev, t.calls) for t in other.tried]
    assert [t.dev for t in one.tried] == pytest.approx([0.35621, 1.0], abs=1e-5)
    assert [t.test for t in one.tried] == pytest.approx([0.35621, 1.0], abs=1e-5)
    assert [t.test for t in other.tried] == pytest.approx([1.0, 0.63093], abs=1e-5)  # the right one fell to place 2
    assert made.dev["toy"]["candidates"] == {"identity": 0.35621, "listwise-k10": 1.0}
    assert one.queries == (len(dev), len(QUERIES) - len(dev))


def test_only_dev_queries_are_asked_about_but_for_the_chosen_one(write_task: Any, tmp_path: Path) -> None:
    corpus = {f"d{number}": f"text of d{number}" for number in range(10)}
    folder = write_task(corpus, {q: f"text of {q}" for q in QUERIES}, {q: {RIGHT: 1} for q in QUERIES})
    run = tmp_path / "run.trec"
    write_run(Run.from_lists({query: list(corpus) for query in QUERIES}), run, Form.TREC)
    source = open_run(str(run), str(folder))
    with Client(FakeBackend(favourite)) as client:
        choose(source, [Step(), Step("listwise", k=10)], {}, LLMSettings(model="m"), client, report_test=False)
        backend: Any = client.backend
        assert {request.query for request in backend.requests} == dev_queries("toy", QUERIES)
