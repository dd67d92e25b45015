"""TourRank: points, failures, seeds, pools of any size; nothing depends on when answers arrive."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.delimited import find, wanted
from obliq_eval.demo.personalities import perfect
from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_models.llm.client import Client
from obliq_models.llm.fake import FakeBackend
from obliq_models.llm.settings import LLMSettings
from obliq_models.rerankers import sweep, tournament
from obliq_models.rerankers.asking import Asking
from obliq_models.rerankers.base import Candidate, Query
from obliq_models.rerankers.cutting import Cut
from obliq_models.rerankers.tourrank import TourRank

if TYPE_CHECKING:
    from pathlib import Path

    from obliq_models.llm.protocol import Request

QUERY = Query("q", "the query, which is long enough to be told from others", "T")


def rerank(tourrank: TourRank, pool: Any) -> Any:
    assert tourrank.client is not None
    return tourrank.client.run(tourrank.rerank(QUERY, pool))


def numbers(answer: Any) -> list[int]:
    return [int(identifier[1:]) for identifier in answer.ids]


def chance(request: Request) -> str:
    """Answer with a selection that follows from the prompt, good for nothing."""
    prompt = request.messages[1][1]
    found, asked = find(prompt), wanted(prompt)
    assert found is not None
    assert asked is not None
    seed = hashlib.sha256(prompt.encode()).hexdigest()
    return json.dumps({"selection": random.Random(seed).sample(range(1, len(found.documents) + 1), asked.size)})


def test_a_perfect_judge_brings_the_last_of_a_hundred_to_the_top(asking: Any, pool: Any, requests: Any) -> None:
    documents = pool(100)
    llm = asking(perfect({QUERY.text: [documents[99].text]}))
    answer = rerank(TourRank(llm, y=2), documents)
    assert answer.ids[0] == "d99"
    assert [points["d99"] for points in answer.points] == [5, 5]  # chosen in each of the five rounds
    assert (answer.questions, answer.failed, len(requests(llm))) == (26, 0, 26)
    for points in answer.points:
        assert sum(points.values()) == 50 + 20 + 10 + 5 + 2
        assert max(points.values()) <= 5


def test_a_cascade_over_two_hundred(asking: Any, pool: Any, requests: Any) -> None:
    documents = pool(200)
    llm = asking(perfect({QUERY.text: [documents[199].text]}))
    answer = rerank(TourRank(llm, y=1, pool=200), documents)
    assert answer.points[0]["d199"] == 6  # one round more than a hundred documents have
    assert "d199" in answer.ids[:2]  # two are chosen in the last round, and equal points keep the order of the pool
    assert len(requests(llm)) == 23


def test_tournaments_show_other_orders_and_a_seed_gives_the_same(asking: Any, pool: Any, requests: Any) -> None:
    first, again, other = (asking(function=chance) for _ in range(3))
    answers = [rerank(TourRank(llm, y=2, seed=seed), pool(30)) for llm, seed in ((first, 0), (again, 0), (other, 1))]
    assert answers[0] == answers[1]
    assert answers[0].points[0] != answers[0].points[1]
    prompts = [{request.messages for request in requests(llm)} for llm in (first, again, other)]
    assert prompts[0] == prompts[1] != prompts[2]
    assert {request.sample for request in requests(first)} == {0, 3}  # three attempts each


def test_the_order_in_which_answers_arrive_changes_nothing(asking: Any, pool: Any) -> None:
    async def late(request: Request) -> str:
        await asyncio.sleep(random.random() / 50)
        return chance(request)

    calm = rerank(TourRank(asking(function=chance), y=3), pool(60))
    assert rerank(TourRank(asking(function=late), y=3), pool(60)) == calm


def test_fewer_tournaments_are_part_of_more(asking: Any, pool: Any) -> None:
    """A sweep over Y reads every Y from one run: the same order as asking for that many."""
    documents = pool(40)
    run = Run.from_lists({"q": [document.id for document in documents]})
    most = rerank(TourRank(asking(function=chance), y=4), documents)
    for y in (1, 2, 3, 4):
        alone = rerank(TourRank(asking(function=chance), y=y), documents)
        assert sweep.at(run, {"q": most}, y).rankings["q"].documents == alone.ids


def test_garbage_gives_no_points_and_the_first_documents_go_on(asking: Any, pool: Any, requests: Any) -> None:
    llm = asking(function=lambda _: "I am sorry, but I cannot choose.")
    answer = rerank(TourRank(llm, y=2), pool(100))
    assert numbers(answer) == list(range(100))
    assert answer.points == ({}, {})
    assert answer.failures == (13, 13)
    assert (answer.failed, answer.questions, len(requests(llm))) == (26, 26, 3 * 26)


def test_one_failed_group_costs_its_own_points_alone(asking: Any, pool: Any) -> None:
    """Ten documents, 2 calls: the group of ten fails, so 0 to 4 go on in their order; of these, 4 and 3 are chosen."""

    def answer(request: Request) -> str:
        found = find(request.messages[1][1])
        assert found is not None
        if len(found.documents) == 10:
            return "no"
        return json.dumps(
            {"selection": [found.documents.index(text) + 1 for text in (documents[4].text, documents[3].text)]}
        )

    documents = pool(10)
    result = rerank(TourRank(asking(function=answer), y=1), documents)
    assert numbers(result) == [3, 4, 0, 1, 2, 5, 6, 7, 8, 9]
    assert (result.points, result.failures) == (({"d4": 1, "d3": 1},), (1,))


@settings(deadline=None, max_examples=25)
@given(size=st.integers(0, 130), y=st.integers(1, 3))
def test_any_pool_becomes_a_permutation(size: int, y: int) -> None:
    with Client(FakeBackend(chance)) as client:
        tourrank = TourRank(Asking(LLMSettings(model="m"), client), y=y, pool=130)
        pool = tuple(Candidate(f"d{number}", f"text {number}") for number in range(size))
        answer = rerank(tourrank, pool)
        assert sorted(answer.ids) == sorted(candidate.id for candidate in pool)
        assert answer.questions == tournament.calls(size, y) == tourrank.calls(size)
        assert sum(1 for _ in tourrank.requests(QUERY, pool)) == answer.questions
        assert numbers(answer) == tournament.order(
            size, tournament.added({int(d[1:]): won for d, won in points.items()} for points in answer.points)
        )


def test_documents_are_cut_and_counted(asking: Any, requests: Any) -> None:
    """Two tokens are eight characters: one text of 8 stays, one of 20 loses 12."""
    llm = asking(function=lambda _: '{"selection": [1]}')
    cut = Asking(llm.llm, llm.client, Cut(2))
    answer = rerank(TourRank(cut, y=1), (Candidate("d0", "x" * 8), Candidate("d1", "y" * 20)))
    assert answer.counts == {"documents cut": 1, "characters cut from documents": 12}
    found = find(requests(llm)[0].messages[1][1])
    assert found is not None
    assert sorted(found.documents) == ["x" * 8, "y" * 8 + "…"]


@pytest.mark.parametrize(("text", "tokens", "expected"), [("", 1, ""), ("abcd", 1, "abcd"), ("abcde", 1, "abcd…")])
def test_a_cut_text_says_so(text: str, tokens: int, expected: str) -> None:
    assert Cut(tokens)(text) == expected


def test_a_tokenizer_says_where_a_document_is_cut(tmp_path: Path) -> None:
    """A tokenizer of words: three of the five stay, and the 10 characters behind them go."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    unknown: dict[str, Any] = {"unk_token": "[UNK]"}
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, **unknown))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, **unknown).save_pretrained(tmp_path / "words")
    cut = Cut(3, str(tmp_path / "words"))
    assert cut("one two three four five") == "one two three…"
    assert cut("one two three") == "one two three"
    assert cut.counts(["one two three four five", "one"]) == {"documents cut": 1, "characters cut from documents": 10}
    assert cut.settings() == {"document_tokens": 3, "tokens_by": str(tmp_path / "words")}
    with pytest.raises(UserError, match="cannot load the tokenizer"):
        Cut(1, str(tmp_path / "none"))("a text of some length")
