"""The model card: front matter that the hub reads, and every number of the manifest."""

from __future__ import annotations

from typing import Any

import pytest

from obliq_train import card
from obliq_train.recipe import Recipe

HUB = "sentence-transformers/all-MiniLM-L6-v2"
FACTS: dict[str, Any] = {
    "rows": {"sha256": "abc", "edges": {"graph": "def"}, "counts": {"left out": 3}, "parts": {"graph": 1200}},
    "texts": {"truncated document texts": 7},
    "steps": 1500,
    "processes": 1,
    "seed": 5,
    "seconds": 61.2,
    "loss": 1.23456,
    "base": "5" * 40,
    "dev": {"0": {"OBLIQ-Mini-Writing": 0.13}, "40": {"OBLIQ-Mini-Writing": 0.165}},
    "versions": {"python": "3.11", "peft": "0.21.2"},
    "hardware": "Linux x86_64, 2 cores",
    "created": "2026-01-01T00:00:00+00:00",
}


def recipe(**more: Any) -> Recipe:
    part = {"name": "graph", "task": "OBLIQ-Mini-Writing", "corpus": "OBLIQ-Mini-Writing", "teacher": "stylometry"}
    table = {
        "name": "mini",
        "purpose": "Writing style, in small.",
        "model": {"base": "obliq/all-MiniLM-L6-v2", "query_prefix": "query: "},
        "part": ({**part, "k": 3, "dose": 1200},),
        "licence": "apache-2.0",
        "risk": "It may unmask writers.",
        "sources": {"loss.scale": "section 3.4"},
        **more,
    }
    return Recipe.model_validate(table)


def test_the_front_matter_is_what_the_hub_asks_for() -> None:
    from huggingface_hub import ModelCard

    data = ModelCard(card.text(recipe(), FACTS, "mini: the first", HUB)).data.to_dict()
    assert data["base_model"] == HUB
    assert data["license"] == "apache-2.0"
    assert data["library_name"] == "sentence-transformers"
    assert data["pipeline_tag"] == "sentence-similarity"
    assert data["base_model_relation"] == "adapter"
    assert {"lora", "peft", "sentence-transformers"} <= set(data["tags"])
    assert data["model_name"] == "mini: the first"


@pytest.mark.parametrize(
    "told",
    [
        "Writing style, in small.",
        "| graph | OBLIQ-Mini-Writing | nearest neighbours by stylometry (frozen), k = 3, dose 1,200 | neighbours |",
        "1,200 rows (6,000 anchors in 1,500 steps), SHA-256 of the file abc.",
        "- edges of graph: SHA-256 def",
        "- left out: 3",
        "- truncated document texts: 7",
        "| 0 | 0.1300 |\n| 40 | 0.1650 |",
        "dev queries alone",
        '| loss.scale | 50.0 | section 3.4 |',
        "1,500 steps; the last loss was 1.2346",
        'Before a query stands "query: ", before a document nothing; queries are read up to',
        "# the prefix is put before it here",
        "- The adapter: apache-2.0",
        f"- Its base, {HUB}, whose terms hold as well: apache-2.0",
        "It may unmask writers.",
        "-m mini.toml`, where `mini.toml` beside this folder holds:\n\n```toml\n",
        'model = "minilm"\nquery_prefix = "query: "\n',
        'SentenceTransformer("mini")',
        "peft 0.21.2",
        "Linux x86_64, 2 cores, 1 process\n",
    ],
)  # fmt: skip
def test_it_says(told: str) -> None:
    assert told in card.text(recipe(), FACTS, "mini", HUB)


def test_without_prefixes_it_says_that_nothing_is_put_before_texts() -> None:
    text = card.text(recipe(model={"base": "obliq/all-MiniLM-L6-v2"}), FACTS, "mini", HUB)
    assert "Nothing is put before queries and documents; queries are read up to" in text
    assert '""' not in text.partition("## How to load it")[0]
    assert "the prefix" not in text


def test_a_model_of_the_table_is_named_where_it_reads_texts_as_the_recipe_does() -> None:
    """The table's minilm has no prefixes and reads 256 tokens of both, in float32: only then its name serves."""
    plain = {"base": "obliq/all-MiniLM-L6-v2", "encode_query_length": 256, "encode_document_length": 256}
    told = card.text(recipe(model=plain), FACTS, "mini", HUB)
    assert "or `obliq run -t TASK -m minilm@mini`.\n" in told
    assert "```toml" not in told
    for other in (recipe(model={**plain, "encode_query_length": 64}), recipe(model=plain, run={"precision": "bf16"})):
        assert "-m mini.toml`" in card.text(other, FACTS, "mini", HUB)


def test_scores_that_were_measured_afterwards_are_told() -> None:
    known = {"task": "T", "queries": "held-out", "n": 101, "ndcg@10": 0.125, "recall@100": 0.5}
    known["base"] = {"ndcg@10": 0.1, "recall@100": 0.25}
    text = card.text(recipe(), {**FACTS, "scores": [known]}, "mini", HUB)
    assert "| T | held-out | 101 | 0.1250 | 0.5000 | 0.1000 | 0.2500 |" in text


def test_a_licence_is_an_identifier_where_it_begins_with_one() -> None:
    for licence, told in (
        ("Apache-2.0; the texts are in the public domain", 'license: "apache-2.0"\n'),
        ("ask me", 'license: "other"\nlicense_name: "ask me"\n'),
    ):
        assert told in card.text(recipe(licence=licence), FACTS, "mini", HUB)


def test_what_is_not_known_is_said_to_be_so() -> None:
    text = card.text(recipe(licence="", risk=""), {**FACTS, "dev": {}, "processes": 2}, "mini", "some/base")
    assert "license:" not in text
    assert "none is stated; ask whoever trained it" in text
    assert "whose terms hold as well: as its own card says" in text
    assert "None were measured in training." in text
    assert "do not use it to unmask people" in text
    assert "2 cores, 2 processes" in text


def test_the_terms_of_the_papers_base_are_all_named() -> None:
    terms = card.base_terms("nvidia/llama-nv-embed-reasoning-3b")
    assert all(told in terms for told in ("CC-BY-NC-4.0", "CC-BY-4.0", "Llama 3.2"))


def test_a_base_is_known_by_any_of_its_names() -> None:
    assert card.base_terms("some/base", HUB) == "apache-2.0"
    assert card.base_terms("/home/x/base", "obliq/all-MiniLM-L6-v2") == "apache-2.0"
    assert not card.base_terms("some/base", "", "/home/all-MiniLM-L6-v2")
