"""Dev scores while training: dev queries alone, exclusions applied, scores worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.data.split import dev_queries
from obliq_eval.errors import UserError
from obliq_train import build
from obliq_train.recipe import Recipe
from obliq_train.validation import Dev

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS = ["whales", "taxes", "music", "winter", "bread", "ships", "grammar", "roses", "chess", "iron"]


@pytest.fixture(scope="module")
def model() -> Any:
    lengths = dict.fromkeys(("query_length", "document_length", "encode_query_length", "encode_document_length"), 64)
    table = {"base": "obliq/all-MiniLM-L6-v2", **lengths}
    lora = {"targets": ("query",)}
    return build.build(Recipe.model_validate({"name": "r", "purpose": "a test", "model": table, "lora": lora}))


def test_only_dev_queries_are_loaded_and_each_is_scored_by_its_rank(
    model: Any, write_task: Callable[..., Path]
) -> None:
    """Ten queries, two of them dev, each the text of a document; what the others ask for is far away.

    One's own document is judged: rank 1, gain 1. The other's is not, but the one that repeats it is: 1 / log2(3).
    """
    ids = [f"q{n}" for n in range(10)]
    dev = sorted(dev_queries("toy", ids))
    corpus = {f"d{n}": word for n, word in enumerate(WORDS)} | {"far": "an unrelated remark on the weather"}
    queries = {f"q{n}": word for n, word in enumerate(WORDS)}
    second = queries[dev[1]]
    corpus["next"] = f"{second}, {second} and other things"
    gold = {query: {"far": 1} for query in ids}
    gold[dev[0]] = {f"d{dev[0][1:]}": 1}
    gold[dev[1]] = {"next": 1}
    task = write_task(corpus, queries, gold)
    found = Dev.of([str(task)])
    assert sorted(found.tasks[0].asked.queries) == dev
    model.train()
    assert found.scores(model) == {"toy": pytest.approx((1 + 0.630929753571) / 2)}
    assert model.training


def test_what_a_query_excludes_is_no_answer(model: Any, write_task: Callable[..., Path]) -> None:
    """Its own document is excluded, so that the next one has rank 1."""
    ids = [f"q{n}" for n in range(5)]
    (dev,) = dev_queries("toy", ids)
    corpus = {"own": "whales", "next": "whales, whales and other things", "far": "taxes"}
    gold = {query: {"next": 1} for query in ids}
    exclusions = {query: ["own"] for query in ids}
    task = write_task(corpus, dict.fromkeys(ids, "whales"), gold, exclusions=exclusions)
    assert Dev.of([str(task)]).scores(model) == {"toy": 1.0}
    assert list(Dev.of([str(task)]).tasks[0].asked.queries) == [dev]


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"evaluation.tasks: 2 problems\n  - .*nowhere.*\n  - .*OBLIQ-Nothing"):
        Dev.of([str(tmp_path / "nowhere"), "OBLIQ-Nothing"])
