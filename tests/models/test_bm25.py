"""BM25 against the formulas, one document and one word at a time."""

from __future__ import annotations

import importlib.util
import math
import random
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

import bm25s
import pytest
from bm25s.stopwords import STOPWORDS_EN

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.retrievers import bm25

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import datasets

    Table = Callable[..., datasets.Dataset]

STEMMER = importlib.util.find_spec("Stemmer") is not None
TEXT = "cat dog fish bird tree river stone cloud the and of a ran ate saw x 7 42 don't état"


def corpus_of(count: int, seed: int) -> dict[str, str]:
    rng = random.Random(seed)
    texts = {f"d{i:03d}": " ".join(rng.choices(TEXT.split(), k=rng.randint(0, 12))) for i in range(count)}
    return {**texts, "empty": "", "stop": "the and of a"}


def tokens(text: str) -> list[str]:
    return [word for word in re.findall(r"\b\w\w+\b", text.lower()) if word not in STOPWORDS_EN]


def lucene(texts: Mapping[str, str], query: str, k1: float = 1.5, b: float = 0.75) -> dict[str, float]:
    """The formula, one document and one word at a time."""
    split = {key: tokens(text) for key, text in texts.items()}
    mean = sum(map(len, split.values())) / len(split)
    scores = {}
    for key, words in split.items():
        total = 0.0
        for word in tokens(query):
            df = sum(word in other for other in split.values())
            tf = words.count(word)
            idf = math.log(1 + (len(split) - df + 0.5) / (df + 0.5))
            total += idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
        if total > 0:
            scores[key] = total
    return scores


def okapi(texts: Mapping[str, str], query: str, k1: float = 1.5, b: float = 0.75) -> dict[str, float]:
    """rank_bm25's BM25Okapi: a negative idf becomes a quarter of the mean idf."""
    split = {key: [w for w in re.split(r"[\W_]+", text.lower()) if len(w) > 1] for key, text in texts.items()}
    mean = sum(map(len, split.values())) / len(split)
    df = Counter(word for words in split.values() for word in set(words))
    idf = {word: math.log(len(split) - n + 0.5) - math.log(n + 0.5) for word, n in df.items()}
    average = sum(idf.values()) / len(idf)
    idf = {word: value if value >= 0 else 0.25 * average for word, value in idf.items()}
    scores = {}
    for key, words in split.items():
        total = sum(
            idf.get(word, 0) * words.count(word) * (k1 + 1) / (words.count(word) + k1 * (1 - b + b * len(words) / mean))
            for word in re.split(r"[\W_]+", query.lower())
            if len(word) > 1
        )
        if total > 0:
            scores[key] = total
    return scores


def search(table: Table, name: str, texts: Mapping[str, str], query: str, k: int = 1000) -> dict[str, float]:
    model = bm25.load("obliq/bm25", variant=name)
    model.index(table(texts))
    return model.search(table({"q": query}), top_k=k)["q"]


def test_a_score_worked_out_by_hand(table: Table) -> None:
    # Two documents of 2 and 4 words, mean 3; "cat" in one of them: idf = ln(1 + 1.5 / 1.5) = ln 2.
    # tf 1, length 2: 1 / (1 + 1.5 · (.25 + .75 · 2 / 3)) = 1 / 2.125, so ln 2 / 2.125 = .32619.
    found = search(table, "default", {"d1": "Cat river", "d2": "dog dog stone tree"}, "the CAT unknown")
    assert found == {"d1": pytest.approx(0.32619, abs=1e-5)}


@pytest.mark.parametrize(("name", "oracle"), [("default", lucene), ("okapi", okapi)])
@pytest.mark.parametrize(
    "query", ["cat dog", "the cat cat unknown", "ran état 42 don't", "river stone cloud tree bird"]
)
def test_scores_equal_the_formula(
    table: Table, monkeypatch: pytest.MonkeyPatch, name: str, oracle: Callable[..., dict[str, float]], query: str
) -> None:
    monkeypatch.setattr(bm25, "CHUNK", 7)  # several chunks, the last one short
    texts = corpus_of(40, seed=3)
    expected = oracle(texts, query)
    assert expected
    assert search(table, name, texts, query) == pytest.approx(expected, rel=1e-5)


def test_scores_equal_those_of_bm25s(table: Table) -> None:
    texts = corpus_of(60, seed=5)
    peer = bm25s.BM25()
    peer.index(bm25s.tokenize(list(texts.values()), show_progress=False), show_progress=False)
    query = "cat river the fish fish"
    (ids,) = bm25s.tokenize([query], return_ids=False, show_progress=False)
    scores = dict(zip(texts, peer.get_scores(ids).tolist(), strict=True))
    assert search(table, "default", texts, query) == pytest.approx({k: v for k, v in scores.items() if v > 0}, rel=1e-5)


def test_no_shared_word_is_no_answer(table: Table) -> None:
    texts = {"a": "cat", "b": "", "c": "the of"}
    assert search(table, "default", texts, "zebra") == {}
    assert search(table, "default", texts, "") == {}
    assert list(search(table, "default", texts, "cat", k=50)) == ["a"]
    assert search(table, "default", {"a": "", "b": "the"}, "cat") == {}


def test_exclusions_leave_before_the_cut(table: Table) -> None:
    """Two better documents are excluded: the gold one is first among k = 2."""
    model = bm25.load("obliq/bm25")
    model.index(table({"x1": "cat cat", "x2": "cat dog", "g": "cat dog fish bird", "n": "stone"}))
    order = list(model.search(table({"q": "cat"}), top_k=3)["q"])
    assert order == ["x1", "x2", "g"]
    answers = model.search(table({"q": "cat"}, excluded={"q": ["x1", "x2"]}), top_k=2)
    assert list(answers["q"]) == ["g"]


def test_each_name_has_its_own_tokenizer(table: Table) -> None:
    texts = {"a": "the_running cat", "b": "dog", "c": "fish", "d": "bird", "e": "tree"}
    assert list(search(table, "okapi", texts, "running")) == ["a"]  # "_" divides
    assert search(table, "default", texts, "running") == {}  # "the_running" is one word
    with pytest.raises(UserError, match=r'no variant \'okapy\'; did you mean "okapi"'):
        bm25.load("x/y", variant="okapy")


@pytest.mark.skipif(not STEMMER, reason="PyStemmer is not installed")
def test_stemming_joins_forms(table: Table) -> None:
    texts = {"a": "running dogs", "b": "stone"}
    assert list(search(table, "stem", texts, "dog runs")) == ["a"]
    assert list(search(table, "stem", texts, "catalogue cat")) == []


def test_a_missing_stemmer_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtraError, match=r"PyStemmer: pip install 'obliq\[stem\]'"):
        bm25.load("obliq/bm25-stem", variant="stem")


def test_it_loads_through_mteb(table: Table) -> None:
    model = to_meta(resolve("bm25-okapi")).load_model()
    assert isinstance(model, bm25.BM25Retriever)
    assert model.variant == bm25.VARIANTS["okapi"]
    assert model.mteb_model_meta is not None
    assert model.mteb_model_meta.name == "obliq/bm25-okapi"
