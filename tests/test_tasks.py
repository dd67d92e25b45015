"""Tasks through mteb's own `evaluate`: exclusions, unanswered queries, both judgments, bad models."""

from __future__ import annotations

import gc
import json
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
import pytest
from mteb.models.model_meta import ModelMeta, ScoringFunction

from obliq_eval import runs
from obliq_eval.errors import UserError
from obliq_eval.evaluation import panels
from obliq_eval.exclusions import UNANSWERED
from obliq_eval.metrics import evaluate
from obliq_eval.oracles import saw_judgments
from obliq_eval.records import Judgments, Ranking
from obliq_eval.tasks import ObliqTask, folder_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DIMS = 8


def meta(name: str) -> ModelMeta:
    return ModelMeta(
        loader=None, name=f"toy/{name}", revision="1", release_date=None, languages=None, n_parameters=None,
        memory_usage_mb=None, max_tokens=None, embed_dim=DIMS, license=None, open_weights=None,
        public_training_code=None, public_training_data=None, framework=[],
        similarity_fn_name=ScoringFunction.DOT_PRODUCT, use_instructions=None, training_datasets=None,
    )  # fmt: skip


def vector(text: str) -> np.ndarray:
    """The text is the seed; in steps of 1/256, products of two vectors are exact in float32 in any order of adding."""
    values = np.random.default_rng(abs(hash_of(text))).normal(size=DIMS)
    return (np.round(values * 256) / 256).astype(np.float32)


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[:12].ljust(12, b"\0"), "big")


class Encoder:
    """mteb's encoder protocol, and nothing of this project's."""

    def __init__(self, change: Callable[[np.ndarray], np.ndarray] = lambda vectors: vectors) -> None:
        self.mteb_model_meta = meta("encoder")
        self.change = change

    def encode(self, inputs: Any, **_: Any) -> np.ndarray:
        return self.change(np.stack([vector(text) for batch in inputs for text in batch["text"]]))

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        return np.asarray(a) @ np.asarray(b).T

    def similarity_pairwise(self, a: Any, b: Any) -> np.ndarray:
        return (np.asarray(a) * np.asarray(b)).sum(axis=1)


class CrossEncoder:
    def __init__(self) -> None:
        self.mteb_model_meta = meta("cross").model_copy(update={"model_type": ["cross-encoder"]})

    def predict(self, inputs1: Any, inputs2: Any, **_: Any) -> np.ndarray:
        first = [t for b in inputs1 for t in b["text"]]
        second = [t for b in inputs2 for t in b["text"]]
        return np.array([float(vector(a) @ vector(b)) for a, b in zip(first, second, strict=True)], dtype=np.float32)


class Search:
    """mteb's search protocol with fixed answers; it never hears of exclusions."""

    def __init__(self, answers: Mapping[str, Mapping[str, float]]) -> None:
        self.mteb_model_meta = meta("search")
        self.answers = answers
        self.columns: list[str] = []

    def index(self, corpus: Any, **_: Any) -> None:
        self.size = len(corpus)

    def search(self, queries: Any, *, top_k: int, **_: Any) -> dict[str, dict[str, float]]:
        self.columns = queries.column_names
        best = {q: sorted(self.answers.get(q, {}).items(), key=lambda x: -x[1])[:top_k] for q in queries["id"]}
        return {q: dict(answer) for q, answer in best.items() if answer}


def evaluated(task: ObliqTask, model: Any, folder: Path, **more: Any) -> dict[str, Any]:
    result = mteb.evaluate(
        model, task, cache=mteb.ResultCache(folder / "results"), overwrite_strategy="always", co2_tracker=False,
        show_progress_bar=False, **more,
    )  # fmt: skip
    scores: dict[str, Any] = result.task_results[0].scores["test"][0]
    return scores


def ranking_oracle(query: str, corpus: Mapping[str, str], excluded: list[str], depth: int) -> list[str]:
    """Score everything, mask, sort, cut."""
    scores = {d: float(np.float32(vector(query) @ vector(text))) for d, text in corpus.items() if d not in excluded}
    return sorted(scores, key=lambda d: (scores[d], d), reverse=True)[:depth]


@pytest.fixture
def random_task(write_task: Callable[..., Path]) -> tuple[Path, dict[str, str], dict[str, str], dict[str, list[str]]]:
    """1,200 documents, so that the cut at 1,000 bites; q0 excludes 150 documents, others a few, q3 none."""
    rng = np.random.default_rng(5)
    corpus = {f"d {i}/é": f"{i} document" for i in range(1200)}
    queries = {f"q{i}": f"{i} query" for i in range(4)}
    ids = list(corpus)
    gold = {q: {ids[i]: 1 for i in rng.choice(1200, 30, replace=False)} for q in queries}
    pooled = {q: {**grades, ids[7]: 1, ids[9]: 2} for q, grades in gold.items()}
    best = {q: ranking_oracle(text, corpus, [], 1200) for q, text in queries.items()}
    exclusions = {"q0": best["q0"][:150], "q1": best["q1"][:3], "q2": [best["q2"][0], best["q2"][999]]}
    return write_task(corpus, queries, gold, pooled, exclusions), corpus, queries, exclusions


def stored(scores: Mapping[str, Any]) -> runs.Run:
    return runs.load(scores["obliq_run"]).read()


def test_an_encoder_of_mteb_is_ranked_as_by_the_slow_masked_reference(random_task: Any, tmp_path: Path) -> None:
    folder, corpus, queries, exclusions = random_task
    scores = evaluated(folder_task(folder), Encoder(), tmp_path)
    run = stored(scores)
    for query, text in queries.items():
        expected = ranking_oracle(text, corpus, exclusions.get(query, []), 1000)
        assert len(expected) == 1000
        assert list(run.rankings[query].documents) == expected


def test_mteb_writes_what_our_panel_says(random_task: Any, tmp_path: Path) -> None:
    task = folder_task(random_task[0])
    scores = evaluated(task, Encoder(), tmp_path)
    found = panels(stored(scores), task_data(random_task[0]))
    assert set(found) == {"gold", "pooled"}
    for name, prefix in (("gold", ""), ("pooled", "pooled_")):
        for measure, mean in found[name].means().items():
            assert mean is not None
            assert scores[prefix + measure.replace("@", "_at_")] == round(mean, 5)
    assert scores["main_score"] == scores["ndcg_at_10"]
    assert scores["pooled_ndcg_at_10"] != scores["ndcg_at_10"]


def task_data(folder: Path) -> Any:
    task = folder_task(folder)
    task.load_data()
    return task.data


def test_excluded_documents_make_room_before_the_cut(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """x1 .9, x2 .8, g .7 with x1 and x2 excluded: g is first, so NDCG is 1 at every depth."""
    folder = write_task({"x1": "a", "x2": "b", "g": "c"}, {"q": "?"}, {"q": {"g": 1}}, exclusions={"q": ["x1", "x2"]})
    model = Search({"q": {"x1": 0.9, "x2": 0.8, "g": 0.7}})
    task = folder_task(folder)
    task._top_k = 2
    scores = evaluated(task, model, tmp_path)
    assert scores["ndcg_at_1"] == 1.0
    assert stored(scores).rankings["q"].documents == ("g",)
    assert model.columns == ["id", "text"]


def test_a_gold_document_that_is_excluded_counts_as_missed(
    write_task: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two gold documents, one of them excluded: recall is 1/2; NDCG@10 is 1 / (1 + 1/log2(3)) = .61315."""
    folder = write_task({"x": "a", "g": "c"}, {"q": "?"}, {"q": {"g": 1, "x": 1}}, exclusions={"q": ["x"]})
    scores = evaluated(folder_task(folder), Search({"q": {"x": 0.9, "g": 0.7}}), tmp_path)
    assert scores["recall_at_10"] == 0.5
    assert scores["ndcg_at_10"] == pytest.approx(1 / (1 + 1 / np.log2(3)), abs=5e-6)
    assert "1 gold documents are also excluded" in caplog.text


def test_gold_documents_that_do_not_exist_are_said_and_kept(
    write_task: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1, "gone": 1}})
    scores = evaluated(folder_task(folder), Search({"q": {"a": 1.0}}), tmp_path)
    assert scores["recall_at_10"] == 0.5
    assert "1 gold documents are not in the corpus" in caplog.text
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert manifest.counts["gold documents not in the corpus"] == 1


def test_reranking_candidates_lose_what_is_excluded_before_the_pool_is_cut(random_task: Any, tmp_path: Path) -> None:
    folder, corpus, queries, exclusions = random_task
    predictions = {
        "mteb_model_meta": {"model_name": "first/stage", "revision": "1"},
        "default": {
            "test": {q: {d: float(vector(t) @ vector(x)) for d, x in corpus.items()} for q, t in queries.items()}
        },
    }
    task = folder_task(folder)
    (tmp_path / "pred").mkdir()
    (tmp_path / "pred" / task.prediction_file_name).write_text(json.dumps(predictions))
    scores = evaluated(task.convert_to_reranking(tmp_path / "pred", top_k=20), CrossEncoder(), tmp_path)
    run = stored(scores)
    for query, text in queries.items():
        assert list(run.rankings[query].documents) == ranking_oracle(text, corpus, exclusions.get(query, []), 20)


def test_an_unanswered_query_counts_in_mtebs_own_file(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """Two queries, one answered perfectly: every mean is 1/2."""
    folder = write_task({"a": "a", "b": "b"}, {"q1": "1", "q2": "2"}, {"q1": {"a": 1}, "q2": {"b": 1}})
    scores = evaluated(folder_task(folder), Search({"q1": {"a": 1.0}}), tmp_path, prediction_folder=tmp_path / "p")
    for measure in ("ndcg_at_10", "recall_at_10", "mrr_at_10", "map_at_10", "hit_rate_at_1"):
        assert scores[measure] == 0.5, measure
    assert scores["n_queries"] == 2
    assert scores["n_unanswered"] == 1
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert manifest.unanswered == ("q2",)
    assert stored(scores).rankings["q2"].documents == ()
    predicted = json.loads((tmp_path / "p" / "toy_predictions.json").read_text())["default"]["test"]
    assert predicted["q2"] == {UNANSWERED: 0.0}


def test_queries_without_a_relevant_document_are_left_out_in_both_forms(
    write_task: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"q1": "1", "q2": "2", "q3": "3"}
    answers = {q: {"b": 0.9, "a": 0.8} for q in texts}
    expected = None
    for name, gold in (
        ("without", {"q1": {"a": 1}, "q3": {"b": 1}}),
        ("zero", {"q1": {"a": 1}, "q2": {"a": 0}, "q3": {"b": 1}}),
    ):
        folder = write_task({"a": "a", "b": "b"}, texts, gold, name=name)
        scores = evaluated(folder_task(folder), Search(answers), tmp_path)
        shown = {k: v for k, v in scores.items() if "nauc" not in k and k != "obliq_run"}
        expected = expected or shown
        assert shown == expected
        assert shown["n_queries"] == 2
    assert "1 queries have no relevant document and are left out: q2" in caplog.text


def test_ties_follow_trec_evals_rule_whatever_the_order(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """Only a is gold, and a and b tie: b comes first, so NDCG is 1/log2(3) = .63093 and the reciprocal rank is 1/2."""
    folder = write_task({"a": "a", "b": "b"}, {"q": "?"}, {"q": {"a": 1}})
    for answer in ({"a": 1.0, "b": 1.0}, {"b": 1.0, "a": 1.0}):
        scores = evaluated(folder_task(folder), Search({"q": answer}), tmp_path)
        assert (scores["ndcg_at_10"], scores["mrr_at_10"]) == (0.63093, 0.5)
        assert evaluate({"q": answer}, {"q": {"a": 1}}, ["ndcg@10"]).mean("ndcg@10") == pytest.approx(
            0.630930, abs=1e-6
        )


def test_the_same_evaluation_is_stored_once(random_task: Any, tmp_path: Path, obliq_home: Path) -> None:
    first = evaluated(folder_task(random_task[0]), Encoder(), tmp_path)
    files = {p: p.stat().st_mtime_ns for p in obliq_home.glob("runs/*/run.parquet")}
    second = evaluated(folder_task(random_task[0]), Encoder(), tmp_path)
    assert first["obliq_run"] == second["obliq_run"]
    assert {p: p.stat().st_mtime_ns for p in obliq_home.glob("runs/*/run.parquet")} == files


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda v: np.where(np.arange(len(v))[:, None] == 1, np.nan, v),
            "toy/encoder returned NaN or infinity in 1 of",
        ),
        (lambda v: v[:-1], r"toy/encoder returned \d+ vectors for \d+ texts"),
        (lambda v: v[:, 0], r"toy/encoder returned \(\d+,\) where an array of vectors was expected"),
        (lambda _: None, "toy/encoder returned NoneType where an array of vectors was expected"),
        (lambda v: v.astype(str), "toy/encoder returned vectors of <U32, not of real numbers"),
    ],
)
def test_an_encoder_that_breaks_is_named(
    write_task: Callable[..., Path], tmp_path: Path, change: Any, sentence: str, obliq_home: Path
) -> None:
    folder = write_task({"a": "a", "b": "b", "c": "c"}, {"q1": "1", "q2": "2"}, {"q1": {"a": 1}, "q2": {"b": 1}})
    with pytest.raises(UserError, match=sentence):
        evaluated(folder_task(folder), Encoder(change), tmp_path)
    assert not list(obliq_home.glob("runs/*/run.parquet"))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"q": {"a": float("nan")}}, "query 'q': document 'a' has a score that is not a finite number"),
        ({"q": {"zzz": 1.0}}, "a document that is not in the corpus: 'zzz' for query 'q'"),
        ({"q": {"a": 1.0}, "Q": {"a": 1.0}}, "toy/search answers a query that was not asked: 'Q'"),
        ({"q": {"a": "best"}}, "the answers of toy/search: query 'q': scores must be numbers"),
        ({"q": ["a"]}, "the answers of toy/search are not of the form"),
        (None, "the answers of toy/search are not of the form"),
    ],
)
def test_a_search_model_that_breaks_is_named(
    write_task: Callable[..., Path], tmp_path: Path, answer: Any, sentence: str
) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}})
    model = Search({})
    model.search = lambda *_, **__: answer  # type: ignore[method-assign]
    with pytest.raises(UserError, match=sentence):
        evaluated(folder_task(folder), model, tmp_path)


def test_a_model_that_raises_is_named_and_the_cause_kept(write_task: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}})
    model = Search({})

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory\nand more")

    model.search = broken  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"toy/search failed while searching \(RuntimeError: out of memory\)") as caught:
        evaluated(folder_task(folder), model, tmp_path)
    assert isinstance(caught.value.__cause__, RuntimeError)


class Spy(Search):
    """Keeps everything that it is ever given."""

    accepts_exclusions = True
    judgments: Any = None

    def __init__(self, answers: Mapping[str, Mapping[str, float]], *, declared: Any = False) -> None:
        super().__init__(answers)
        self.is_oracle = declared
        self.given: list[Any] = []
        self.seen: list[Any] = []

    def index(self, corpus: Any, **kwargs: Any) -> None:
        self.given.append((corpus, kwargs))
        self.seen.append(self.judgments)
        super().index(corpus, **kwargs)

    def search(self, queries: Any, *, top_k: int, **kwargs: Any) -> dict[str, dict[str, float]]:
        self.given.append((queries, top_k, kwargs))
        self.seen.append(self.judgments)
        return super().search(queries, top_k=top_k, **kwargs)


def judgments_within(root: Any) -> list[Any]:
    """Return every record of judgments and every `{query: {document: grade}}` that can be reached from an object."""
    todo, known, found = [root], {id(root)}, []
    while todo:
        one = todo.pop()
        if isinstance(one, Judgments):
            found.append(one)
        if isinstance(one, dict) and isinstance(one.get("q"), dict) and "gold" in one["q"]:
            found.append(one)
        for other in gc.get_referents(one):
            code = (type, ModuleType, FunctionType, BuiltinFunctionType)
            if id(other) not in known and not isinstance(other, code):
                known.add(id(other))
                todo.append(other)
    return found


@pytest.fixture
def judged_task(write_task: Callable[..., Path]) -> Path:
    corpus = {"gold": "a", "zero": "b", "pooled": "c", "x": "d"}
    gold = {"q": {"gold": 1, "zero": 0}}
    return write_task(corpus, {"q": "?"}, gold, {"q": {"gold": 1, "pooled": 1}}, {"q": ["x"]})


@pytest.mark.parametrize("declared", [False, None, 1, "True", "yes"])
def test_a_model_that_is_no_oracle_is_given_no_judgment(judged_task: Path, tmp_path: Path, declared: Any) -> None:
    """Whatever can be reached from the tables, the metadata, the options and the model itself holds none."""
    model = Spy({"q": {"zero": 0.5}}, declared=declared)
    scores = evaluated(folder_task(judged_task), model, tmp_path, encode_kwargs={"batch_size": 2})
    assert model.seen == [None, None]
    assert model.judgments is None
    corpus, queries = model.given[0][0], model.given[1][0]
    assert (corpus.column_names, queries.column_names) == (["id", "text"], ["id", "text", "excluded_ids"])
    assert model.given[1][2]["encode_kwargs"] == {"batch_size": 2}
    assert not judgments_within(model)
    assert "oracle" not in scores
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert not manifest.oracle


def test_the_search_for_judgments_would_find_them() -> None:
    hidden = {"a": [SimpleNamespace(kept=({"q": {"gold": 1}},))], "b": Judgments({})}
    assert len(judgments_within(hidden)) == 2


def test_an_oracle_sees_judgments_while_it_searches_and_is_marked(judged_task: Path, tmp_path: Path) -> None:
    model = Spy({"q": {"gold": 0.5}}, declared=True)
    scores = evaluated(folder_task(judged_task), model, tmp_path)
    for seen in model.seen:
        assert {name: dict(judged.grades) for name, judged in seen.items()} == {
            "gold": {"q": {"gold": 1, "zero": 0}},
            "pooled": {"q": {"gold": 1, "pooled": 1}},
        }
    assert model.judgments is None, "taken away afterwards"
    assert scores["oracle"] is True
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert manifest.oracle
    assert manifest.model.settings["oracle"] is True
    other = Spy({"q": {"gold": 0.5}})
    assert evaluated(folder_task(judged_task), other, tmp_path)["obliq_run"] != scores["obliq_run"]


def test_judgments_are_taken_away_from_an_oracle_that_fails(judged_task: Path, tmp_path: Path) -> None:
    model = Spy({"q": {"nowhere": 0.5}}, declared=True)
    with pytest.raises(UserError, match="a document that is not in the corpus"):
        evaluated(folder_task(judged_task), model, tmp_path)
    assert model.seen[0] is not None
    assert model.judgments is None


def test_a_run_that_builds_on_an_oracles_is_an_oracles() -> None:
    assert saw_judgments({"first": {"run": "r", "settings": {"oracle": True}}, "step": {}})
    assert saw_judgments({"first": {"settings": {"first": {"settings": {"oracle": True}}}}})
    assert not saw_judgments({"first": {"settings": {"oracle": False}}, "oracle": "no"})
    assert not saw_judgments({"first": "r"})


def test_two_pools_are_two_runs(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """The same cross-encoder over other candidates is another run: a is gold, and only the first pool holds it."""
    folder = write_task({"a": "a", "b": "b"}, {"q": "?"}, {"q": {"a": 1}})
    found = []
    for document in ("a", "b"):
        pool = {"mteb_model_meta": {"model_name": "x/y", "revision": "1"}, "default": {"test": {"q": {document: 1.0}}}}
        (tmp_path / "pool.json").write_text(json.dumps(pool))
        task = folder_task(folder).convert_to_reranking(tmp_path / "pool.json", top_k=1)
        found.append(evaluated(task, CrossEncoder(), tmp_path))
    assert [scores["ndcg_at_10"] for scores in found] == [1.0, 0.0]
    assert found[0]["obliq_run"] != found[1]["obliq_run"]
    assert "recall_at_10" not in found[0], "a pool of one says nothing of recall at 10"


def test_mtebs_file_holds_our_panel_at_a_rounding_tie(write_task: Callable[..., Path], tmp_path: Path) -> None:
    """42 of 64 queries find 1 of 6 gold documents: the mean is 42 / (64 * 6) = .109375, between two roundings."""
    corpus = {f"d{i}": str(i) for i in range(12)}
    gold = {f"q{i}": {f"d{j}": 1 for j in range(6)} for i in range(64)}
    folder = write_task(corpus, {q: q for q in gold}, gold)
    answers = {f"q{i}": {"d0" if i < 42 else "d11": 1.0} for i in range(64)}
    scores = evaluated(folder_task(folder), Search(answers), tmp_path)
    manifest = runs.load(scores["obliq_run"]).manifest
    assert manifest is not None
    assert manifest.scores["gold"]["recall@10"] == pytest.approx(0.109375, abs=1e-15)
    assert scores["recall_at_10"] == round(manifest.scores["gold"]["recall@10"], 5)


def test_a_run_that_cannot_be_stored_does_not_cost_the_result(
    write_task: Callable[..., Path], tmp_path: Path, obliq_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}})
    task = folder_task(folder)
    task.load_data()
    (obliq_home / "runs").write_text("a file where a folder should be")
    scores = evaluated(task, Search({"q": {"a": 1.0}}), tmp_path)
    assert scores["ndcg_at_10"] == 1.0
    assert "obliq_run" not in scores
    assert "could not be stored" in caplog.text


def test_a_folder_may_not_take_a_tasks_name(write_task: Callable[..., Path]) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}}, name="OBLIQ-Writing")
    with pytest.raises(UserError, match="has the name of a registered task"):
        folder_task(folder)


@pytest.mark.parametrize("name", ["SciFact", "NFCorpus", "model_meta", "Model_Meta"])
def test_a_folder_may_not_be_called_like_a_file_of_mtebs(write_task: Callable[..., Path], name: str) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}}, name=name)
    with pytest.raises(UserError, match="rename the folder"):
        folder_task(folder)


def test_a_folder_that_changes_after_it_was_chosen_is_not_searched(
    write_task: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}})
    qrels = folder / "queries+qrels" / "qrels.tsv"
    task, before = folder_task(folder), qrels.read_text()
    qrels.write_text("q\ta\t2\n")
    for _ in range(2):
        with pytest.raises(UserError, match="has changed since it was chosen"):
            evaluated(task, Search({"q": {"a": 1.0}}), tmp_path)
    qrels.write_text(before)
    assert evaluated(task, Search({"q": {"a": 1.0}}), tmp_path)["ndcg_at_10"] == 1.0


def test_a_folders_revision_follows_its_content(write_task: Callable[..., Path]) -> None:
    folder = write_task({"a": "a"}, {"q": "?"}, {"q": {"a": 1}})
    before = folder_task(folder).metadata.revision
    assert before == folder_task(folder).metadata.revision
    (folder / "queries+qrels" / "qrels.tsv").write_text("q\ta\t2\n")
    assert folder_task(folder).metadata.revision != before


def test_without_drops_before_it_cuts() -> None:
    ranking = Ranking.of(["x", "y", "z"], [3.0, 2.0, 1.0])
    assert ranking.without(frozenset({"x"}), 1).documents == ("y",)
