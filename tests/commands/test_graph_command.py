"""`obliq graph`, `obliq purity` and `obliq negatives`: what they write, tell and refuse, on a bundled set too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.data.sources import MINI_FOLDER
from obliq_eval.edges import read_edges
from obliq_eval.fields import read_sources
from obliq_train.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUNNER = CliRunner()
WRITING = MINI_FOLDER / "writing"
ADDRESS = ("--source", f"{WRITING / 'provenance.tsv'}#speech", "--source-pattern", r"^(.*)-\d+$")
DECADE = f"{WRITING / 'corpus' / 'corpus.jsonl'}#decade"
TEXTS = {
    "s1_a": "whales sing at night", "s1_b": "whales sing at noon", "s2_a": "whales sing at sea",
    "s2_b": "goats climb at noon", "s3_a": "goats climb at night", "s3_b": "goats climb at sea", "s3_c": "",
}  # fmt: skip


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> Any:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.fixture
def folder(write_task: Callable[..., Path]) -> Path:
    gold = {"q1": {"s1_a": 1, "s2_a": 1}, "q2": {"s2_b": 1, "s3_b": 1}}
    return write_task(TEXTS, {"q1": "whales", "q2": "goats"}, gold)


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of stylometry on Mini-Writing, edges inside an address forbidden."""
    place = tmp_path_factory.mktemp("writing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OBLIQ_HOME", str(place / "home"))
        done("graph", "OBLIQ-Mini-Writing", "-m", "stylometry", *ADDRESS, "-o", place / "all.jsonl")
    return place


def test_a_graph_is_written_with_its_manifest_and_the_same_bytes_again(folder: Path, tmp_path: Path) -> None:
    first = done("graph", folder, "-m", "bm25", "-k", 2, "-o", tmp_path / "a.jsonl")
    assert "10 edges from 6 of 6 distinct texts" in first.stdout or "12 edges from 6 of 6" in first.stdout
    told = json.loads(
        done("graph", "--data", folder, "-m", "bm25", "-k", 2, "-o", tmp_path / "b.jsonl", "--json").stdout
    )
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    manifest = json.loads((tmp_path / "b.jsonl.manifest.json").read_text("utf-8"))
    assert told == {"path": str(tmp_path / "b.jsonl"), **manifest}
    assert (manifest["settings"]["model"], manifest["settings"]["k"], manifest["seed"]) == ("obliq/bm25", 2, None)
    assert manifest["counts"]["empty documents"] == 1
    assert manifest["lines"] == len(read_edges(tmp_path / "b.jsonl"))
    assert "score" not in (tmp_path / "b.jsonl").read_text("utf-8")


def test_sources_by_a_rule_over_ids(folder: Path, tmp_path: Path) -> None:
    done("graph", folder, "-m", "bm25", "-k", 5, "--source-pattern", r"^(s\d)", "-o", tmp_path / "e.jsonl")
    edges = read_edges(tmp_path / "e.jsonl")
    assert all(edge.anchor[:2] != edge.neighbour[:2] for edge in edges)
    assert {(edge.anchor, edge.neighbour) for edge in edges if edge.anchor == "s1_a"} >= {("s1_a", "s2_a")}


def test_a_dose_and_both_controls(folder: Path, tmp_path: Path) -> None:
    every, dose = tmp_path / "all.jsonl", tmp_path / "dose.jsonl"
    done("graph", folder, "-m", "bm25", "-k", 3, "-o", every)
    assert "edges before the dose" in done("graph", folder, "--edges", every, "--dose", 7, "-o", dose).stdout
    drawn = read_edges(dose)
    assert len(drawn) == 7
    assert set(drawn) <= set(read_edges(every))
    (tmp_path / "kind.tsv").write_text("".join(f"{d}\t{text[:4]}\n" for d, text in TEXTS.items()), "utf-8")
    for control, more in (("random", ()), ("matched", ("--match", tmp_path / "kind.tsv"))):
        made = tmp_path / f"{control}.jsonl"
        done("graph", folder, "--edges", dose, "--control", control, *more, "--seed", 3, "-o", made)
        found = read_edges(made)
        assert [(e.anchor, e.rank) for e in found] == [(e.anchor, e.rank) for e in drawn]
        if control == "matched":
            assert [TEXTS[e.neighbour][:4] for e in found] == [TEXTS[e.neighbour][:4] for e in drawn]
        assert json.loads(made.with_name(f"{made.name}.manifest.json").read_text("utf-8"))["seed"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say where the graph comes from"),
        (("-m", "bm25", "--edges", "x.jsonl"), "say where the graph comes from"),
        (("-m", "bm25", "--control", "randm"), 'did you mean "random"'),
        (("-m", "bm25", "--control", "matched"), "go together"),
        (("-m", "bm25", "--match", "x.tsv"), "go together"),
        (("--edges", "x.jsonl", "--mutual"), "--mutual is for a graph that is made"),
        (("--edges", "missing.jsonl"), "cannot read missing.jsonl"),
        (("-m", "bm25", "--source-pattern", "("), "not a regular expression"),
        (("-m", "bm25", "--dose", "1000"), "the dose is 1,000"),
    ],
)
def test_graphs_that_cannot_be_made(arguments: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    result = run("graph", folder, *arguments, "-o", tmp_path / "e.jsonl")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.glob("e.jsonl*"))


def test_nothing_that_is_read_is_written_over(folder: Path, tmp_path: Path) -> None:
    edges, corpus = tmp_path / "e.jsonl", folder / "corpus" / "corpus.jsonl"
    done("graph", folder, "-m", "bm25", "-o", edges)
    before = [file.read_bytes() for file in (edges, corpus)]
    for arguments in (
        ("graph", folder, "--edges", edges, "--dose", 2, "-o", edges),
        ("graph", corpus, "-m", "bm25", "-o", corpus),
        ("negatives", edges, "--data", folder, "--anchor", "document", "-o", edges),
        ("negatives", edges, "--data", corpus, "--anchor", "document", "-o", corpus),
    ):
        result = run(*arguments)
        assert (result.exit_code, "is one of the inputs" in result.stderr) == (2, True), result.stderr
    assert [file.read_bytes() for file in (edges, corpus)] == before


def test_a_graph_without_edges_is_not_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.tsv").write_text("".join(f"{d}\tone\n" for d in TEXTS), "utf-8")
    result = run("graph", folder, "-m", "bm25", "--source", tmp_path / "s.tsv", "-o", tmp_path / "e.jsonl")
    assert (result.exit_code, "no edge is left" in result.stderr) == (2, True), result.stderr
    assert not list(tmp_path.glob("e.jsonl*"))


def test_labels_of_other_documents_are_refused_and_too_few_are_no_pass(folder: Path, tmp_path: Path) -> None:
    edges, labels = tmp_path / "e.tsv", tmp_path / "l.tsv"
    edges.write_text("s1_a\ts2_a\t1\n", "utf-8")
    labels.write_text("other\tx\n", "utf-8")
    refused = run("purity", edges, "--labels", labels)
    assert (refused.exit_code, "its ids are others, such as 'other'" in refused.stderr) == (2, True), refused.stderr
    labels.write_text("s1_a\tx\n", "utf-8")
    unknown = run("purity", edges, "--labels", labels)
    assert (unknown.exit_code, "nothing can be said" in unknown.stdout) == (1, True), unknown.stderr


def test_stylometry_on_mini_writing_joins_one_person_s_addresses(writing: Path) -> None:
    """Seen: 379 of 1,902 labelled edges, 19.9 %, and 4,030 of the 203,773 pairs that are not of one address, 2.0 %."""
    edges = read_edges(writing / "all.jsonl")
    address = read_sources(ADDRESS[1], ADDRESS[3], {document for edge in edges for document in edge[:2]})
    assert address is not None
    assert len(edges) == 3 * 655
    assert not any(address[edge.anchor] & address[edge.neighbour] for edge in edges)
    told = done("purity", writing / "all.jsonl", "-t", "OBLIQ-Mini-Writing", *ADDRESS, "--within", DECADE, "--json")
    found = json.loads(told.stdout)
    assert found["verdict"] == "aligned"
    assert 0.15 < found["whole"]["purity"] < 0.25
    assert found["whole"]["base"] == pytest.approx(4_030 / 203_773)
    assert found["by_k"]["1"]["purity"] > found["by_k"]["3"]["purity"]
    assert 1 < found["within"]["lift"] < found["whole"]["lift"] / 3  # most of it is era


def test_a_random_control_is_told_as_such_with_status_1(writing: Path, tmp_path: Path) -> None:
    made = tmp_path / "random.jsonl"
    done("graph", "OBLIQ-Mini-Writing", "--edges", writing / "all.jsonl", "--control", "random", *ADDRESS, "-o", made)
    result = run("purity", made, "-t", "OBLIQ-Mini-Writing", *ADDRESS, "--resamples", 1000)
    assert result.exit_code == 1
    assert "do not distil" in result.stdout


def test_edges_matched_on_the_decade_are_told_as_decade_alone(writing: Path, tmp_path: Path) -> None:
    made = tmp_path / "matched.jsonl"
    more = ("--control", "matched", "--match", DECADE)
    done("graph", "OBLIQ-Mini-Writing", "--edges", writing / "all.jsonl", *more, *ADDRESS, "-o", made)
    result = run("purity", made, "-t", "OBLIQ-Mini-Writing", *ADDRESS, "--within", DECADE, "--resamples", 1000)
    assert result.exit_code == 1
    assert "What the graph lifts may be decade alone" in result.stdout


def test_an_audit_of_a_field_ends_well_whatever_it_finds(writing: Path) -> None:
    told = done("purity", writing / "all.jsonl", "--labels", DECADE, "--audit", "the decade", "--resamples", 1000)
    assert "The graph carries the decade" in told.stdout


def test_purity_from_qrels_tables_and_refusals(folder: Path, tmp_path: Path) -> None:
    """Groups: s1_a and s2_a, s2_b and s3_b. Edges: s1_a-s2_a (same), s2_b-s1_a (not)."""
    file, qrels = tmp_path / "e.tsv", folder / "queries+qrels" / "qrels.tsv"
    file.write_text("s1_a\ts2_a\t1\ns2_b\ts1_a\t1\n", "utf-8")
    for given in (("--qrels", qrels), ("--data", folder), ("--qrels", qrels, "--groups", "query")):
        found = json.loads(run("purity", file, *given, "--json").stdout)
        assert (found["whole"]["labelled"], found["whole"]["same"]) == (2, 1)
        assert found["whole"]["base"] == pytest.approx(2 / 6)
    drawn = run("purity", file, "--qrels", qrels, "--plot", tmp_path / "p.svg")
    assert "rank 1" in drawn.stdout
    assert "random pairs" in drawn.stdout
    assert (tmp_path / "p.svg").stat().st_size
    refused = {
        (): "say where labels come from",
        ("--qrels", qrels, "-t", folder): "say where labels come from",
        ("--qrels", qrels, "--groups", "unoin"): 'did you mean "union"',
        ("--qrels", qrels, "--within", "none.tsv"): "cannot read none.tsv",
    }
    for arguments, message in refused.items():
        result = run("purity", file, *arguments)
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_rows_from_edges_from_synthetic_queries_and_from_rows(writing: Path, tmp_path: Path) -> None:
    every, dose = writing / "all.jsonl", tmp_path / "dose.jsonl"
    done("graph", "OBLIQ-Mini-Writing", "--edges", every, "--dose", 40, "-o", dose)
    common = ("--data", "OBLIQ-Mini-Writing", "--graph", every)
    done("negatives", dose, *common, "--anchor", "document", "-o", tmp_path / "graph.rows.jsonl")
    rows = list(read_rows(tmp_path / "graph.rows.jsonl"))
    near = {
        anchor: {e.neighbour for e in read_edges(every) if e.anchor == anchor} for anchor in {r.query_id for r in rows}
    }
    for row, edge in zip(rows, read_edges(dose), strict=True):
        assert (row.query_id, row.positive_ids, row.source) == (edge.anchor, (edge.neighbour,), "dose")
        assert len(row.negative_ids) == 4
        assert not {row.query_id, *row.positive_ids, *near[row.query_id]} & set(row.negative_ids)
    synthetic = tmp_path / "synthetic.jsonl"
    lines = [
        {"document": r.query_id, "description": "Terse. Dry.", "query": "war and peace", "lens": "l"} for r in rows[:5]
    ]
    synthetic.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    told = done("negatives", synthetic, "--data", "OBLIQ-Mini-Writing", "-n", 2, "--ranks", "5-50", "--seed", 7)
    assert "no graph was given" in told.stderr
    drawn = list(read_rows(tmp_path / "synthetic.rows.jsonl"))
    assert [len(row.negative_ids) for row in drawn] == [2] * 5
    assert drawn[0].more == {"lens": "l"}
    described = ("--descriptions", synthetic, "--one-line")
    told = done("negatives", dose, *common, *described, "--from", "query", "-o", tmp_path / "d.rows.jsonl")
    assert "edges whose anchor has no description" in told.stdout
    assert {row.query.text for row in read_rows(tmp_path / "d.rows.jsonl")} == {"Terse."}
    again = tmp_path / "again.rows.jsonl"
    done("negatives", tmp_path / "graph.rows.jsonl", *common, "--from", "positive", "-o", again)
    assert [row.negative_ids for row in read_rows(again)] == [row.negative_ids for row in rows]


def test_the_same_rows_again_are_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    done("graph", folder, "-m", "bm25", "-k", 1, "-o", tmp_path / "e.jsonl")
    common = ("negatives", tmp_path / "e.jsonl", "--data", folder, "--anchor", "document", "-n", 1, "--ranks", "1-3")
    first = done(*common, "-o", tmp_path / "a.jsonl")
    done(*common, "-o", tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    done(*common, "--seed", 1, "-o", tmp_path / "c.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() != (tmp_path / "c.jsonl").read_bytes()
    manifest = json.loads((tmp_path / "a.jsonl.manifest.json").read_text("utf-8"))
    assert (manifest["settings"]["from"], manifest["settings"]["last"], manifest["seed"]) == ("positive", 3, 0)
    assert f"{manifest['counts']['rows']} rows with {manifest['counts']['negatives']} negatives" in first.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say what an edge's query is"),
        (("--anchor", "descripton"), 'did you mean "description"'),
        (("--anchor", "description"), "go together"),
        (("--anchor", "document", "--ranks", "50"), "write the first and the last rank"),
        (("--anchor", "document", "--ranks", "5-50", "--skip", "2"), "leave --skip out"),
        (("--anchor", "document", "--ranks", "5-6"), "fewer than 4 negatives"),
        (("--anchor", "document", "--from", "anchor"), "not query or positive"),
        (("--anchor", "document", "--bm25", "okpai"), 'did you mean "okapi"'),
    ],
)
def test_rows_that_cannot_be_made(arguments: tuple[str, ...], message: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"anchor": "s1_a", "neighbour": "s2_a", "rank": 1}\n', "utf-8")
    result = run("negatives", tmp_path / "e.jsonl", "--data", folder, *arguments, "-o", tmp_path / "rows.jsonl")
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "rows.jsonl").exists()
