"""A teacher's scores in rows: a cross-encoder's against sentence-transformers' own, and the ranks of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from typer.testing import CliRunner

from obliq_eval import runs
from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_eval.run_files import Form, write_run
from obliq_models.rerankers import crossencoder
from obliq_models.rerankers.base import Query
from obliq_train import scores
from obliq_train.distinct import Distinct
from obliq_train.rows import Passage, Row, read_rows
from tests.train.tiny import write_cross_encoder

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = CliRunner()
CORPUS = {
    "a": "whales sing in the cold sea",
    "b": "a ship sailed to the north",
    "c": "the king spoke of the harvest and the war",
    "d": "whales",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("models") / "judge", CORPUS.values())


def row(query: str, positive: str, *negatives: str, instruction: str = "") -> Row:
    return Row(
        Passage(instruction, query),
        (Passage("", CORPUS[positive]),),
        tuple(Passage("", CORPUS[one]) for one in negatives),
        query_id=positive,
        more={"kept": 1},
    )


def expected(folder: Path, query: str, texts: list[str]) -> list[float]:
    model = CrossEncoder(str(folder), device="cpu")
    return [float(model.predict([(query, text)])[0]) for text in texts]


def test_each_document_is_scored_with_the_query_behind_its_instruction(folder: Path) -> None:
    """Against sentence-transformers, pair by pair; rounded to six decimals; other keys of the row stay."""
    teacher = scores.load(str(folder), "cpu")
    given = [row("cold sea", "a", "b", "c", instruction="Find:"), row("the war", "c", "d")]
    first, second = teacher.scored(given)
    wanted = expected(folder, "Find: cold sea", [CORPUS[one] for one in "abc"])
    assert first.more["scores"]["pos"] == [pytest.approx(wanted[0], abs=1e-6)]
    assert first.more["scores"]["neg"] == pytest.approx(wanted[1:], abs=1e-6)
    assert second.more["scores"] == {
        "pos": pytest.approx(expected(folder, "the war", [CORPUS["c"]]), abs=1e-6),
        "neg": pytest.approx(expected(folder, "the war", [CORPUS["d"]]), abs=1e-6),
    }
    assert len({*wanted}) == 3
    assert first.more["kept"] == 1
    assert first.scores is not None
    assert second.scores is not None
    assert teacher.counts["documents scored by the teacher"] == 5


def test_a_row_has_the_same_bytes_whatever_stands_beside_it(folder: Path) -> None:
    """Long and short neighbours would change the padding, and with it the last bits of a shared batch."""
    one = row("cold sea", "a", "b", "d")
    alone = list(scores.load(str(folder), "cpu").scored([one]))
    among = list(scores.load(str(folder), "cpu").scored([row("x " * 40, "c", "a"), one, *[row("war", "d", "c")] * 80]))
    assert among[1].to_json() == alone[0].to_json()


def test_groups_are_batches_of_their_own(folder: Path) -> None:
    model = crossencoder.load(str(folder), "cpu")
    seen: list[list[tuple[str, str]]] = []
    own = model.model.predict

    def predict(pairs: list[tuple[str, str]], **settings: Any) -> Any:
        seen.append(pairs)
        return own(pairs, **settings)

    model.model.predict = predict
    found = crossencoder.CrossEncoder(model).grouped([(Query("", "q"), ["a", "b", "c"]), (Query("", "r"), ["d"])])
    assert seen == [[("q", "a"), ("q", "b"), ("q", "c")], [("r", "d")]]
    assert [len(one) for one in found] == [3, 1]


def test_a_teacher_that_tells_nothing_apart_is_counted(folder: Path) -> None:
    teacher = scores.load(str(folder), "cpu")
    list(teacher.scored([row("cold sea", "a", "a"), row("cold sea", "a")]))
    assert teacher.counts["rows whose documents all have one score"] == 1


def test_a_score_that_is_no_number_is_an_error(folder: Path) -> None:
    model = crossencoder.load(str(folder), "cpu")
    model.model.predict = lambda pairs, **_: np.full(len(pairs), np.nan)
    teacher = scores.Teacher(crossencoder.CrossEncoder(model, name="judge"))
    with pytest.raises(UserError, match="judge did not return one finite number for each of 2 pairs"):
        list(teacher.scored([row("cold sea", "a", "b")]))


def test_the_command_writes_scores_and_who_gave_them(tmp_path: Path, folder: Path) -> None:
    """The same command gives the same bytes; scores go with the negatives that were mined."""
    corpus, rows = tmp_path / "corpus.jsonl", tmp_path / "in.jsonl"
    corpus.write_text("".join(json.dumps({"_id": i, "text": text}) + "\n" for i, text in CORPUS.items()), "utf-8")
    rows.write_text(row("whales of the sea", "a").to_json() + "\n" + row("the king", "c").to_json() + "\n", "utf-8")
    command = ["negatives", str(rows), "--data", str(corpus), "-n", "2", "--scores", str(folder), "-o"]
    for name in ("one", "two"):
        done = RUNNER.invoke(app, [*command, str(tmp_path / f"{name}.jsonl")])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    found = list(read_rows(tmp_path / "one.jsonl"))
    assert [len(one.more["scores"]["neg"]) for one in found] == [len(one.negatives) for one in found]
    assert all(one.scores is not None for one in found)
    told = json.loads((tmp_path / "one.jsonl.manifest.json").read_text("utf-8"))
    assert told["settings"]["scores"]["model"] == "local/judge"
    assert len(told["settings"]["scores"]["revision"]) == 64
    assert told["counts"]["documents scored by the teacher"] == sum(1 + len(one.negatives) for one in found)


def test_a_run_gives_the_list_and_minus_the_rank(tmp_path: Path) -> None:
    """The run answers a with c, a, b and d with one document; depth 2 keeps c and a, -1 and -2."""
    corpus, rows, run = tmp_path / "corpus.jsonl", tmp_path / "in.jsonl", tmp_path / "teacher.trec"
    corpus.write_text("".join(json.dumps({"_id": i, "text": text}) + "\n" for i, text in CORPUS.items()), "utf-8")
    rows.write_text(row("whales of the sea", "a").to_json() + "\n" + row("deep", "d").to_json() + "\n", "utf-8")
    write_run(Run.of({"a": {"c": 3.0, "a": 2.0, "b": 1.0}, "d": {"b": 1.0}}, 3), run, Form.TREC)
    command = ["negatives", str(rows), "--data", str(corpus), "-n", "1", "--ranking", str(run)]
    done = RUNNER.invoke(app, [*command, "-o", str(tmp_path / "out.jsonl")])
    assert done.exit_code == 0, done.output
    assert "1 rows left out, which the run does not answer" in done.stdout
    [found] = read_rows(tmp_path / "out.jsonl")
    assert found.query.text == "whales of the sea"
    assert [one.text for one in (*found.positives, *found.negatives)] == [CORPUS["c"], CORPUS["a"]]
    assert (found.positive_ids, found.negative_ids) == (("c",), ("a",))
    assert found.more["scores"] == {"pos": [-1.0], "neg": [-2.0]}
    told = json.loads((tmp_path / "out.jsonl.manifest.json").read_text("utf-8"))["settings"]["scores"]
    assert told["depth"] == 2
    idle = RUNNER.invoke(app, [*command, "--scores", "x/y", "--skip", "3"])
    assert (idle.exit_code, "leave --scores, --skip out" in idle.stderr) == (2, True)


def test_nothing_is_learned_from_the_test_queries_of_a_task(tmp_path: Path) -> None:
    documents = Distinct(datasets.Dataset.from_dict({"id": list(CORPUS), "text": list(CORPUS.values())}))
    run = Run.of({"q": {"a": 2.0, "b": 1.0}}, 2)

    def stored(task: str, coverage: Any) -> str:
        return runs.store(
            run,
            runs.Manifest(
                task=task, data=runs.Data(task, "1", "mini"), model=runs.Model("x/y", coverage), depth=2, n_queries=1,
                coverage=coverage,
            ),
        ).name  # fmt: skip

    with pytest.raises(UserError, match="answers the test queries of OBLIQ-Mini-Math, on which nothing is trained"):
        scores.lists(stored("OBLIQ-Mini-Math", "all"), documents, 2)
    for task, coverage in (("OBLIQ-Mini-Math", "dev"), ("my-folder", "all")):
        assert scores.lists(stored(task, coverage), documents, 2).run.rankings["q"].documents == ("a", "b")
    strange = scores.Lists(Run.of({"q": {"a": 2.0, "z": 1.0}}, 2), "r", documents, 2)
    with pytest.raises(UserError, match="the run's document 'z' is not in the corpus"):
        list(strange.scored([Row(Passage("", "q"), (Passage("", "a"),), query_id="q")]))
