"""Situations that broke other tools, each under the name of its kind, with the result that is right here."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import datasets
import mteb
import pytest
import pytrec_eval

from obliq_eval import runs
from obliq_eval.data.audit import audit
from obliq_eval.data.files import read_qrels
from obliq_eval.data.sources import load, open_source
from obliq_eval.errors import UserError
from obliq_eval.metrics import evaluate, score
from obliq_eval.records import Judgments, Run
from obliq_eval.run_files import read_run, write_run
from obliq_eval.tasks import folder_task
from obliq_models.retrievers.bm25 import load as load_bm25

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBERLIKE = ("007", "7", "1e3", "-5")


def test_ties() -> None:
    """The gold a ties with b: trec_eval puts b first, so NDCG is 1/log2(3) = .6309 and the reciprocal rank .5."""
    for answer in ({"a": 1.0, "b": 1.0}, {"b": 1.0, "a": 1.0}):
        panel = evaluate({"q": answer}, {"q": {"a": 1}}, ["ndcg@10", "mrr@10"])
        assert panel.mean("ndcg@10") == pytest.approx(0.6309, abs=5e-5)
        assert panel.mean("mrr@10") == 0.5
        canonical = Run.of({"q": answer}).to_dict()
        peer = pytrec_eval.RelevanceEvaluator({"q": {"a": 1}}, {"ndcg_cut.10", "recip_rank"}).evaluate(canonical)["q"]
        assert peer["ndcg_cut_10"] == pytest.approx(panel.mean("ndcg@10"), abs=1e-12)
        assert peer["recip_rank"] == 0.5


@pytest.mark.parametrize("second", [{}, {"a": 0}, {"a": -1}])
def test_unjudgeable_query(second: dict[str, int]) -> None:
    run = {q: {"a": 0.9, "b": 0.8} for q in ("q1", "q2", "q3")}
    qrels = {"q1": {"a": 1}, "q2": second, "q3": {"b": 1}}
    panel = evaluate(run, qrels)
    without = evaluate(run, {q: qrels[q] for q in ("q1", "q3")})
    assert panel.means() == without.means()
    assert panel.unjudgeable == ("q2",)
    assert all(0 <= value <= 1 for values in panel.values.values() for value in values)


def test_unanswered_query() -> None:
    panel = evaluate({"q1": {"a": 1.0}}, {"q1": {"a": 1}, "q2": {"b": 1}}, ["mrr@10"])
    assert panel.mean("mrr@10") == 0.5
    assert panel.unanswered == ("q2",)


def test_duplicate_document(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'q'.*'d1'"):
        Run.from_lists({"q": ["d1", "d1", "d2"]})
    file = tmp_path / "run.trec"
    file.write_text("q Q0 d1 1 3.0 x\nq Q0 d1 2 2.0 x\nq Q0 d2 3 1.0 x\n")
    with pytest.raises(UserError, match=r"'q'.*'d1'"):
        read_run(file)


@pytest.mark.parametrize("value", [0.9, 1.5, "0.9", "1.5"])
def test_grades_that_are_not_whole(value: object) -> None:
    with pytest.raises(UserError, match="not a whole number"):
        Judgments.of([("q", "d", value)])


def test_grade_written_as_1_0() -> None:
    assert Judgments.of([("q", "d", "1.0")]).grades == {"q": {"d": 1}}


@pytest.mark.parametrize("form", ["trec", "ranx", "mteb", "parquet"])
def test_ids_like_numbers_in_run_files(form: Any, tmp_path: Path) -> None:
    run = Run.of({q: {d: float(i) for i, d in enumerate(NUMBERLIKE)} for q in NUMBERLIKE})
    file = tmp_path / f"run.{form}"
    write_run(run, file, form, name="toy/model", revision="1")
    assert read_run(file).to_dict() == run.to_dict()


def test_ids_like_numbers_through_folder_task_and_mteb(write_task: Callable[..., Path], tmp_path: Path) -> None:
    texts = dict(zip(NUMBERLIKE, ("alpha words", "beta words", "gamma words", "delta words"), strict=True))
    folder = write_task(texts, texts, {i: {i: 1} for i in NUMBERLIKE}, exclusions={"7": ["007"]})
    data = load(folder)
    assert list(data.queries) == list(data.corpus.documents["id"]) == list(NUMBERLIKE)
    assert data.exclusions == {"7": frozenset({"007"})}
    model = mteb.get_model("bm25")
    mteb.evaluate(
        model, folder_task(folder), cache=None, prediction_folder=tmp_path / "p", co2_tracker=False,
        show_progress_bar=False,
    )  # fmt: skip
    run = read_run(tmp_path / "p" / "toy_predictions.json")
    assert set(run.rankings) == set(NUMBERLIKE)
    assert all(run.rankings[i].documents[0] == i for i in NUMBERLIKE)
    assert "007" not in run.rankings["7"].documents


def test_file_forms(tmp_path: Path) -> None:
    rows = [("q 1", "d/é", 2), ("q 1", "007", 1), ("q2", "d/é", 0)]
    tsv = "".join(f"{q}\t{d}\t{g}\n" for q, d, g in rows)
    forms = {
        "lf": tsv.encode(),
        "crlf": tsv.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + tsv.encode(),
        "hyphen": b"query-id\tcorpus-id\tscore\n" + tsv.encode(),
        "underscore": b"query_id\tcorpus_id\tscore\n" + tsv.encode(),
        "trec": "".join(f"{q}\t0\t{d}\t{g}\n" for q, d, g in rows).encode(),
    }
    read = {}
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        read[name] = read_qrels(tmp_path / name)
    assert all(judgments == Judgments.of(rows) for judgments in read.values())
    (tmp_path / "neither").write_text(f"{tsv}q3\td9\n")
    with pytest.raises(UserError, match="line 4"):
        read_qrels(tmp_path / "neither")


def test_exclusions_under_bm25(write_task: Callable[..., Path]) -> None:
    """x1, x2 and g match in this order; with x1 and x2 excluded and k = 2, g is the first of one answer."""
    corpus = {"x1": "lamp lamp lamp", "x2": "lamp lamp", "g": "lamp and more words beside it", "z": "nothing of it"}
    folder = write_task(corpus, {"q": "lamp"}, {"q": {"g": 1}}, exclusions={"q": ["x1", "x2"]})
    model = load_bm25("obliq/bm25", revision="1", variant="default")
    model.index(load(folder).corpus.documents)
    plain = datasets.Dataset.from_dict({"id": ["q"], "text": ["lamp"]})
    assert list(model.search(plain, top_k=2)["q"]) == ["x1", "x2"]
    masked = plain.add_column("excluded_ids", [["x1", "x2"]])
    answer = model.search(masked, top_k=2)
    assert evaluate(answer, {"q": {"g": 1}}, ["ndcg@2"]).mean("ndcg@2") == 1.0


WORDS = (
    "lamp", "harbour", "winter", "glass", "river", "orchard", "engine", "paper", "stone", "window", "garden", "letter",
)  # fmt: skip
TEXTS = {f"d{i}": " ".join(WORDS[(i * j) % 12] for j in range(2, 7)) for i in range(12)}  # 12 ways through the words
QUERIES = {"q": "lamp glass river", "free": "winter stone letter"}


def tiny_bert(folder: Path) -> str:
    """Save a BERT with random weights, whose tokens are words, and return its folder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(("[PAD]", "[UNK]", *WORDS))}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    tokenizer: Any = PreTrainedTokenizerFast
    tokenizer(tokenizer_object=words, model_max_length=16, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS) + 2, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return str(folder)


def check_exclusions(
    model: Any, score: Callable[[str, str], float], write_task: Callable[..., Path], folder: Path
) -> None:
    """Exclude a query's two best documents of twelve, ask for two: it gets the two next, the other query its best."""
    scores = {q: {d: score(query, text) for d, text in TEXTS.items()} for q, query in QUERIES.items()}
    best = {q: sorted(row, key=lambda d: -row[d]) for q, row in scores.items()}
    for q, order in best.items():  # no rounding error may decide
        assert all(scores[q][a] - scores[q][b] > 1e-4 for a, b in pairwise(order[:5]))
    x1, x2, g = best["q"][:3]
    task = folder_task(
        write_task(TEXTS, QUERIES, {"q": {g: 1}, "free": {best["free"][0]: 1}}, exclusions={"q": [x1, x2]})
    )
    task._top_k = 2
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    found = result.task_results[0].scores["test"][0]
    rankings = runs.load(found["obliq_run"]).read().rankings
    for q, expected in {"q": best["q"][2:4], "free": best["free"][:2]}.items():
        assert list(rankings[q].documents) == expected
        assert rankings[q].scores.tolist() == pytest.approx([scores[q][d] for d in expected], abs=1e-5)
    assert found["ndcg_at_1"] == 1.0


def test_exclusions_under_a_dense_model(write_task: Callable[..., Path], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(tiny_bert(tmp_path / "bert"))
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu")

    def cosine(query: str, document: str) -> float:
        a, b = (model.encode(text).tolist() for text in (query, document))
        return float(sum(x * y for x, y in zip(a, b, strict=True)))

    check_exclusions(model, cosine, write_task, tmp_path)


def test_exclusions_under_late_interaction(write_task: Callable[..., Path], tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Transformer
    from torch.nn import Identity

    transformer = Transformer(tiny_bert(tmp_path / "bert"))
    dense = Dense(
        transformer.get_embedding_dimension(), 8, bias=False, activation_function=Identity(),
        module_input_name="token_embeddings",
    )  # fmt: skip
    model = MultiVectorEncoder(modules=[transformer, dense, MultiVectorMask(), Normalize()], device="cpu")

    def maxsim(query: str, document: str) -> float:
        tokens, others = model.encode_query(query).tolist(), model.encode_document(document).tolist()
        assert (len(tokens), len(others)) == (len(query.split()), len(document.split()))
        return float(sum(max(sum(x * y for x, y in zip(a, b, strict=True)) for b in others) for a in tokens))

    check_exclusions(model, maxsim, write_task, tmp_path)


def test_excluded_and_gold_is_an_error_of_the_audit(write_task: Callable[..., Path]) -> None:
    folder = write_task({"a": "a", "b": "b"}, {"q": "?"}, {"q": {"a": 1, "b": 1}}, exclusions={"q": ["a"]})
    errors = [finding for finding in audit(open_source(folder)) if finding.level == "error"]
    assert [(e.what, e.count) for e in errors] == [("documents both gold and excluded for a query", 1)]
    run = Run.of({"q": {"a": 2.0, "b": 1.0}}).without(load(folder).exclusions, 10)
    assert score(run, load(folder).gold, ["recall@10"]).mean("recall@10") == 0.5


def test_one_shot_inputs() -> None:
    rows = (row for row in [("q", "a", 1), ("q", "b", 0)])
    judgments = Judgments.of(rows)
    first, second = (evaluate({"q": {"b": 2.0, "a": 1.0}}, judgments) for _ in range(2))
    assert first.means() == second.means()
    assert first.mean("ndcg@10") == pytest.approx(0.6309, abs=5e-5)


def test_short_and_scoreless_runs(tmp_path: Path) -> None:
    """Lists of at most 20 ids: the order is the rank, and Recall@100 is unknown."""
    file = tmp_path / "lists.jsonl"
    file.write_text(json.dumps({"query_id": "q", "documents": [f"d{i}" for i in range(20)]}) + "\n")
    panel = score(read_run(file), Judgments.of([("q", "d1", 1)]))
    assert panel.mean("recall@100") is None
    assert panel.mean("recall@10") == 1.0
    assert panel.mean("ndcg@10") == pytest.approx(0.6309, abs=5e-5)
