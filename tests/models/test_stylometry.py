"""Cosine Delta against its definition."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from obliq_models.retrievers import stylometry
from obliq_models.retrievers.base import Texts
from obliq_models.retrievers.function_words import FUNCTION_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    import datasets

    Table = Callable[..., datasets.Dataset]


def test_function_words_are_distinct_and_lower_case() -> None:
    assert 300 <= len(FUNCTION_WORDS) == len(set(FUNCTION_WORDS))
    assert all(word == word.lower() for word in FUNCTION_WORDS)


def test_frequencies_and_cosine_worked_out_by_hand(table: Table) -> None:
    """Without n-grams, over "of" and "the" alone: z-scores are (1, -1), (-1, 1), so cosines are 1 and -1."""
    model = stylometry.StylometryRetriever(ngrams=1)
    model.index(table({"b": "of of xx", "a": "the the xx"}))
    words = model._words.transform(["the the xx"]).toarray()[0]
    assert words[FUNCTION_WORDS.index("the")] == 2
    assert words.sum() == 2
    found = model.search(table({"q": "of of xx"}), top_k=5)["q"]
    assert found["b"] == pytest.approx(1, abs=1e-5)
    assert found["a"] == pytest.approx(-1, abs=1e-5)


def test_scores_equal_cosine_delta_computed_slowly(table: Table) -> None:
    rng = random.Random(1)
    words = ["the", "of", "and", "We,", "ran.", "to-day", "but", "cats"]
    texts = {f"d{i}": " ".join(rng.choices(words, k=30)) for i in range(12)}
    model = stylometry.StylometryRetriever(ngrams=50)
    corpus = table(texts).sort("id", reverse=True)
    model.index(corpus)
    query = "and We, ran the cats but of"
    raw = model._frequencies(list(Texts(corpus))).astype(np.float64)
    asked = model._frequencies([query])[0].astype(np.float64)
    expected = {}
    for key, row in zip(corpus["id"], raw, strict=True):
        varying = raw.std(axis=0) > 1e-9
        z, zq = (((vector - raw.mean(axis=0))[varying] / raw.std(axis=0)[varying]) for vector in (row, asked))
        expected[key] = float(z @ zq / np.linalg.norm(z) / np.linalg.norm(zq))
    assert model.search(table({"q": query}), top_k=99)["q"] == pytest.approx(expected, abs=1e-4)


def test_it_finds_the_writer_and_not_the_subject(table: Table) -> None:
    plain = "I do not know. I said so. I am not sure of it, and I will not say that I am. "
    ornate = "Whereas the {0}, upon which all depends, whilst neither {0} nor any other thing may thereby avail; "
    texts = {
        "plain-ships": plain + "Ships are old. " + plain,
        "plain-trees": plain + "Trees are old. " + plain,
        "ornate-ships": ornate.format("ships") * 2,
        "ornate-trees": ornate.format("trees") * 2,
    }
    model = stylometry.StylometryRetriever()
    model.index(table(texts))
    found = model.search(table({"q": ornate.format("stones") * 2}), top_k=4)["q"]
    assert set(list(found)[:2]) == {"ornate-ships", "ornate-trees"}


def test_empty_and_tiny_texts_are_ranked(table: Table) -> None:
    model = stylometry.StylometryRetriever()
    model.index(table({"a": "", "b": "x", "c": ""}))
    assert len(model.search(table({"q": ""}), top_k=9)["q"]) == 3


def test_the_same_corpus_gives_the_same_scores(table: Table) -> None:
    texts = {f"d{i}": f"the cat {i} and of it" * (i + 1) for i in range(6)}
    runs = []
    for rows in (texts, dict(reversed(texts.items()))):
        model = stylometry.load("obliq/stylometry")
        model.index(table(rows))
        runs.append(model.search(table({"q": "it and the cat"}), top_k=6)["q"])
    assert list(runs[0].items()) == list(runs[1].items())


def test_of_equally_frequent_ngrams_the_first_by_their_characters_are_taken() -> None:
    """Against a slow count; most of these occur once, and a sort that is not stable would take any of them."""
    texts = [f"{n * 7919 % 1000:03d} ships {n * 104729 % 997:03d} sail" for n in range(60)]
    counts = Counter(text[at : at + width] for text in texts for width in (3, 4) for at in range(len(text) - width + 1))
    wanted = sorted(sorted(counts, key=lambda gram: (-counts[gram], gram))[:100])
    found = stylometry._frequent_ngrams(texts, 100)
    assert found is not None
    assert found.get_feature_names_out().tolist() == wanted
    assert counts[min(wanted, key=lambda gram: counts[gram])] in {1, 2}
