"""One toy folder, evaluated by BEIR and by obliq: the same figures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_models.beir import retriever

if TYPE_CHECKING:
    from pathlib import Path

CORPUS = {
    "007": ("Ships", "old ships sailed far away from the harbour"),
    "a b/c": ("", "dogs ran in parks"),
    "é'x": ("Harbour", "every quiet harbour has a lamp"),
    "d4": ("", "the cat sat on a mat while dogs slept"),
    "d5": ("Lamps", "lamps and ships and parks"),
}
QUERIES = {"q1": "quiet harbour", "q2": "ships and lamps", "q3": "dogs in parks", "none": "zzz"}
GOLD = {"q1": {"é'x": 1}, "q2": {"d5": 1, "007": 1}, "q3": {"d4": 1}, "none": {"d4": 1}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the toy data in BEIR's layout."""
    folder = tmp_path / "toy-beir"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": i, "title": title, "text": text} for i, (title, text) in CORPUS.items()]
    queries = [{"_id": i, "text": text} for i, text in QUERIES.items()]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    lines = [f"{q}\t{d}\t{grade}\n" for q, row in GOLD.items() for d, grade in row.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines), "utf-8")
    return folder


@pytest.mark.parametrize("model", ["bm25", "minilm"])
def test_both_ways_give_equal_figures(
    model: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beir.datasets.data_loader import GenericDataLoader
    from beir.retrieval.evaluation import EvaluateRetrieval

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "-m", model, "--data", str(folder), "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    (ours,) = json.loads(done.stdout)
    scores = ours["scores"]["gold"]

    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")
    evaluation = EvaluateRetrieval(retriever(model, device="cpu"), k_values=[10, 50, 100])
    ndcg, _, recall, _ = evaluation.evaluate(qrels, evaluation.retrieve(corpus, queries), evaluation.k_values)
    theirs = {name.lower(): value for name, value in (ndcg | recall).items()}
    assert theirs["ndcg@10"] > 0.4
    for measure in ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100"):
        assert theirs[measure] == pytest.approx(scores[measure], abs=5.1e-6), measure  # BEIR rounds to five decimals


def test_an_unanswered_query_counts_and_exclusions_hold(folder: Path) -> None:
    """BM25 finds nothing for "zzz"; BEIR's mean over four queries is then three quarters of that over three."""
    from beir.datasets.data_loader import GenericDataLoader
    from beir.retrieval.evaluation import EvaluateRetrieval

    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")
    evaluation = EvaluateRetrieval(retriever("bm25", excluded={"q1": ["é'x"]}), k_values=[10])
    found = evaluation.retrieve(corpus, queries)
    assert "é'x" not in found["q1"]
    assert set(found["q1"]) == {"007"}  # the only other document with one of its words
    ndcg, _, _, _ = evaluation.evaluate(qrels, found, [10])
    # q1 lost its only relevant document; q2 finds both (d5 first or second: it holds both words), q3 finds d4.
    alone = {q: evaluation.evaluate({q: qrels[q]}, {q: found[q]}, [10])[0]["NDCG@10"] for q in qrels}
    assert (alone["q1"], alone["none"]) == (0, 0)
    assert alone["q2"] == 1
    assert ndcg["NDCG@10"] == pytest.approx((1 + alone["q3"]) / 4, abs=1e-5)


def test_a_missing_package_and_the_other_way_are_one_sentence(folder: Path) -> None:
    with pytest.raises(UserError, match="retrieve"):
        retriever("bm25").encode({}, {})
    hide = "import sys; sys.modules['beir'] = None\n"
    code = hide + "from obliq_models.beir import retriever\ntry: retriever('bm25')\nexcept Exception as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "a retriever for BEIR needs the package beir: pip install 'obliq[beir]'"
