"""Run files: every form holds every id, and a damaged file is refused with its line."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_eval.records import Run
from obliq_eval.run_files import Form, read_run, write_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBERS = {
    "007": {"7": 4.0, "1e3": 3.0, "-5": 2.0, "007": 1.0},
    "7": {"1000.0": 1.0},
    "1e3": {"7": 0.5},
    "-5": {"5": -1.0},
}
ODD = {
    "a b": {"american-math-monthly___2008___11212/11220": 2.5, 'say "é" 50%': 1.0, "tab\there": 0.25},
    "": {"": 1.0, "%": 0.5, "%25": 0.25},
    "\ufeff{": {"\u2028": 3.0, "\x85\xa0\x1c": 2.0, "\r\n": 1.0},
}
IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SCORES = st.floats(width=32, allow_nan=False, allow_infinity=False)
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, max_size=5), min_size=1, max_size=4)


def answered(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: list(answer.items()) for query, answer in run.to_dict().items() if answer}


def assert_same(a: Run, b: Run) -> None:
    """Same documents in the same order with bit-identical scores, for every query that has an answer."""
    assert answered(a) == answered(b)
    for query, ranking in a.rankings.items():
        if len(ranking):
            assert ranking.scores.tobytes() == b.rankings[query].scores.tobytes()


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("scores", [NUMBERS, ODD], ids=["numbers", "odd"])
def test_ids_survive_every_form(tmp_path: Path, form: Form, scores: dict[str, dict[str, float]]) -> None:
    run = Run.of(scores)
    write_run(run, tmp_path / "run", form)
    assert_same(run, read_run(tmp_path / "run"))
    assert set(read_run(tmp_path / "run").rankings) == set(scores)


@settings(max_examples=150, deadline=None)
@given(scores=RUNS, form=st.sampled_from(Form))
def test_any_text_is_an_id(
    tmp_path_factory: pytest.TempPathFactory, scores: dict[str, dict[str, float]], form: Form
) -> None:
    run = Run.of(scores)
    assume(form != Form.TREC or answered(run))  # an empty file is refused
    path = tmp_path_factory.mktemp("run") / "run.gz"
    write_run(run, path, form)
    again = read_run(path)
    assert_same(run, again)
    if form != Form.TREC:
        assert set(again.rankings) == set(scores)


def test_chain_through_all_forms(tmp_path: Path) -> None:
    """TREC to ranx to mteb to Parquet and back to TREC gives the first file again."""
    first = tmp_path / "0"
    write_run(Run.of(NUMBERS | ODD), first, Form.TREC)
    path = first
    for form in (Form.RANX, Form.MTEB, Form.PARQUET, Form.TREC):
        write_run(read_run(path), tmp_path / form, form)
        path = tmp_path / form
    assert path.read_bytes() == first.read_bytes()


def test_trec_text_is_canonical_and_plain_when_it_can_be(tmp_path: Path) -> None:
    """Equal scores stand in descending order of id, whatever order they came in; `%` alone needs no encoding."""
    write_run(Run.of({"q": {"a": 1.0, "b%": 1.0, "c": 2.0}}), tmp_path / "run", Form.TREC, name="my model")
    assert (tmp_path / "run").read_text() == "q Q0 c 1 2.0 my-model\nq Q0 b% 2 1.0 my-model\nq Q0 a 3 1.0 my-model\n"


def test_trec_text_is_encoded_when_one_id_needs_it(tmp_path: Path) -> None:
    notes = write_run(Run.of({"q": {"a b": 2.0, "50%": 1.0, "é": 0.5}, "empty": {}}), tmp_path / "run", Form.TREC)
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines() == [
        "q Q0 a%20b 1 2.0 obliq;ids=percent",
        "q Q0 50%25 2 1.0 obliq;ids=percent",
        "q Q0 é 3 0.5 obliq;ids=percent",
    ]
    assert len(notes) == 2
    assert "percent-encoded" in notes[0]
    assert "'empty'" in notes[1]


def test_ids_that_look_encoded_are_left_alone_without_the_tag(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a%20b Q0 x%2Fy 1 1.0 other\n")
    assert read_run(tmp_path / "run").to_dict() == {"a%20b": {"x%2Fy": 1.0}}


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_trec_dialects(tmp_path: Path, start: bytes, end: bytes, pack: Callable[[bytes], bytes]) -> None:
    """The score decides, the rank is ignored; TABs, blank lines and interleaved queries are fine."""
    lines = [b"1 Q0 b 1 0.5 t", b"2\tQ0\tz\t9\t1e-3\tt", b"", b"1 Q0 a 2 7 t"]
    (tmp_path / "run").write_bytes(pack(start + end.join(lines)))
    run = read_run(tmp_path / "run")
    assert answered(run) == {"1": [("a", 7.0), ("b", 0.5)], "2": [("z", pytest.approx(1e-3))]}
    assert run.depth == 2


def test_trec_whose_first_id_starts_with_a_brace(tmp_path: Path) -> None:
    (tmp_path / "run").write_text('{"q":1} Q0 d 1 1.5 t\n{ Q0 d 1 1.5 t\n')
    assert read_run(tmp_path / "run").to_dict() == {'{"q":1}': {"d": 1.5}, "{": {"d": 1.5}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q Q0 a 1 1 t\nq Q0 b 2 nan t\n", ["line 2", "'nan'", "finite"]),
        ("q Q0 a 1 inf t\n", ["line 1", "finite"]),
        ("q Q0 a 1 1e39 t\n", ["line 1", "finite"]),
        ("q Q0 a 1 high t\n", ["line 1", "'high' is not a number"]),
        ("q Q0 a 1 1_0 t\nq Q0 b 1 \u0661 t\n", ["2 problems", "'1_0' is not a number", "'\u0661' is not a number"]),
        ("q Q0 a\0b 1 1 t\n", ["'a\\x00b'", "NUL"]),
        ("q%00 Q0 a 1 1 t;ids=percent\n", ["'q\\x00'", "NUL"]),
        ('{"q\\u0000": {"d": 1.0}, "r": {"d\\u0000": 1.0}}', ["2 problems", "'q\\x00'", "'d\\x00'"]),
        ('{"qid": "1", "documents": ["a\\u0000"]}', ["'a\\x00'", "NUL"]),
        ('{"q": {"d\\ud800": 1.0}}', ["'d\\ud800'", "not valid Unicode"]),
        ('{"q": {"obliq:unanswered": 0.0}}', ["'q'", "'obliq:unanswered' is reserved"]),
        ('{"qid": "1", "qid": "2", "documents": ["a"]}\n', ["line 1", "a key occurs more than once"]),
        ('{"qid": "1", "documents": ["a"], "documents": ["b"]}\n', ["line 1", "a key occurs more than once"]),
        ("q Q0 a 1 1 t\nq Q0 b 2", ["line 2", "4 columns", "six"]),
        ("q Q0 a b 1 1 t\n", ["line 1", "7 columns"]),
        ("q1 Q0 d1 1 3 t\nq1 Q0 d1 2 2 t\nq1 Q0 d2 3 1 t\n", ["line 2", "'q1'", "'d1'", "more than once"]),
        ("q Q0 a 1 1 t;ids=percent\nq Q0 b 2 1 t;ids=per", ["line 2", "cut off"]),
        ("q Q0 %FF 1 1 t;ids=percent\n", ["line 1", "utf-8"]),
        ("q Q0 a 1 x t\nbad\nq Q0 c 1 1 t\nq Q0 c 2 1 t\n", ["3 problems", "line 1", "line 2", "line 4"]),
        ("", ["empty"]),
        ('{"q": {"d": 1.0, "e"', ["line 1", "cut off"]),
        ('{\n "q": {\n  "d": 1.0,\n', ["line 4", "cut off"]),
        ('{"q": {"d": 1.0, "d": 2.0}}', ["'q'", "'d'", "more than once"]),
        ('{"q": {"d": 1.0}, "q": {"e": 2.0}}', ["'q'", "more than once"]),
        ('{"q": {"d": NaN, "e": "1", "f": true}}', ["3 problems", "'d'", "'e'", "'f'"]),
        ('{"q": {"d": 1' + "0" * 400 + "}}", ["'q'", "'d'", "finite"]),
        ('{"q": [["d", 1.0]]}', ["'q'", "{document: score}"]),
        ('{"qid": "1", "documents": ["a"]}\n{"qid": "2", "docum', ["line 2", "cut off"]),
        ('{"qid": "1", "documents": ["a", "b", "a"]}', ["line 1", "'1'", "'a'", "more than once"]),
        ('{"qid": "1", "ranking": []}\n{"qid": "1", "ranking": []}', ["line 2", "'1'", "more than once"]),
        ('{"qid": "1", "documents": ["a"]}\n{"qid": 7, "documents": ["a"]}', ["line 2", "not 7"]),
        ('{"qid": "1", "documents": ["a"], "scores": [NaN]}', ["line 1", "finite"]),
        ('{"qid": "1", "documents": [1]}', ["line 1", "strings"]),
        ("[" * 100_000, ["1 columns"]),
        ('{"a":' * 100_000, ["nested too deeply"]),
    ],
)
def test_bad_text_is_refused_with_its_line(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = tmp_path / "run.txt"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_run(path)
    assert all(part in str(caught.value) for part in [str(path), *expected]), str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    for content, word in [(b"q Q0 \xff 1 1 t", "line 1"), (b"\x1f\x8b\x08", "gzip"), (b"PAR1PAR1", "Parquet")]:
        (tmp_path / "run").write_bytes(content)
        with pytest.raises(UserError, match=word):
            read_run(tmp_path / "run")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="cannot read"):
            read_run(path)


def test_lists_without_scores(tmp_path: Path) -> None:
    """The order is the rank: the first of three gets the highest score; the depth is the longest list."""
    rows = [
        {"query_id": "q0", "retrieved_ids": ["z", "a", "m"], "seconds": 1.5},
        {"query_id": "q1", "retrieved_ids": []},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    run = read_run(path)
    assert run.to_dict() == {"q0": {"z": 3.0, "a": 2.0, "m": 1.0}, "q1": {}}
    assert list(run.to_dict()["q0"]) == ["z", "a", "m"]
    assert run.depth == 3
    assert read_run(path, depth=20).depth == 20
    with pytest.raises(UserError, match="depth is said to be 2"):
        read_run(path, depth=2)


def test_one_line_is_recognised_as_a_list(tmp_path: Path) -> None:
    (tmp_path / "run").write_text('{ "qid": "q", "ranking": ["b", "a"], "scores": [1.0, 2.0] }')
    assert answered(read_run(tmp_path / "run")) == {"q": [("a", 2.0), ("b", 1.0)]}


def test_query_named_like_a_key_is_ranx(tmp_path: Path) -> None:
    scores = {"query_id": {"d": 1.0}, "mteb_model_meta": {"model_name": 1.0}, "qid": {}}
    write_run(Run.of(scores), tmp_path / "run", Form.RANX)
    assert read_run(tmp_path / "run").to_dict() == scores


def test_mteb_parts_and_placeholder(tmp_path: Path) -> None:
    content = {
        "mteb_model_meta": {"model_name": "org/m", "revision": None},
        "en": {"test": {"q": {"d": 2}, "none": {"obliq:unanswered": 0.0}}, "dev": {"q": {"x": 1.0}}},
        "de": {"test": {"q": {"y": 1.0}}},
    }
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"3 parts.*en/test, en/dev, de/test"):
        read_run(path)
    with pytest.raises(UserError, match='2 parts called "test"'):
        read_run(path, part="test")
    with pytest.raises(UserError, match='0 parts called "fr"'):
        read_run(path, part="fr")
    assert read_run(path, part="en/test").to_dict() == {"q": {"d": 2.0}, "none": {}}
    assert read_run(path, part="de").to_dict() == {"q": {"y": 1.0}}


@pytest.mark.parametrize("subset", ["default", "half\ud800"])
def test_mteb_parts_that_come_twice_are_refused(tmp_path: Path, subset: str) -> None:
    """The last would win silently; and what is told can be printed, whatever the names."""
    name, split = json.dumps(subset), '{"test": {"q": {"a": 1}}, "test": {"q": {"b": 1}}}'
    path = tmp_path / "predictions.json"
    whole, halves = f'{{"mteb_model_meta": {{"model_name": "m"}}, {name}: {split}}}', split[1:-1].split(", ")
    assert len(halves) == 2
    apart = '{"mteb_model_meta": {"model_name": "m"}, ' + ", ".join(f"{name}: {{{half}}}" for half in halves) + "}"
    for content in (whole, apart):
        path.write_text(content)
        for part in (None, "test"):
            with pytest.raises(UserError, match="2 parts") as caught:
                read_run(path, part=part)
            assert str(caught.value).encode()


def test_mteb_file_that_we_write(tmp_path: Path) -> None:
    run = Run.of({"q": {"d": 0.5}, "none": {}})
    write_run(run, tmp_path / "p.json", Form.MTEB, name="org/m", revision="abc")
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "mteb_model_meta": {"model_name": "org/m", "revision": "abc"},
        "default": {"test": {"q": {"d": 0.5}, "none": {"obliq:unanswered": 0.0}}},
    }
    assert read_run(tmp_path / "p.json").to_dict() == run.to_dict()


def test_parquet_keeps_depth_order_and_bytes(tmp_path: Path) -> None:
    run = Run.of({"b": {"d": 0.1}, "none": {}, "a": {"d": 1.0}}, depth=1000)
    for name in ("one", "two"):
        write_run(run, tmp_path / name, Form.PARQUET)
    again = read_run(tmp_path / "one")
    assert again.depth == 1000
    assert list(again.rankings) == ["b", "none", "a"]
    assert again.rankings["b"].scores.dtype == np.float32
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("about", "word"),
    [
        (b"[]", "metadata 'obliq'"),
        (b"7", "metadata 'obliq'"),
        (b'{"queries": {"q": 1}}', "metadata 'obliq'"),
        (b'{"queries": "q"}', "metadata 'obliq'"),
        (b'{"queries": [1]}', "metadata 'obliq'"),
        (b'{"depth": "x"}', "metadata 'obliq'"),
        (b'{"depth": 1.5}', "metadata 'obliq'"),
        (b'{"depth": true}', "metadata 'obliq'"),
        (b'{"depth": -1}', "metadata 'obliq'"),
        (b'{"depth": 0}', "depth is said to be 0, but an answer has 2 documents"),
        (b'{"depth": 1}', "depth is said to be 1, but an answer has 2 documents"),
        (b'{"queries": ["q", ', "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"queries": ["q\\u0000"]}', "NUL"),
    ],
)
def test_metadata_that_are_not_a_run_s_are_refused(tmp_path: Path, about: bytes, word: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"query_id": ["q", "q"], "doc_id": ["a", "b"], "score": [2.0, 1.0]}
    pq.write_table(pa.table(columns).replace_schema_metadata({b"obliq": about}), tmp_path / "run")
    with pytest.raises(UserError, match=word) as caught:
        read_run(tmp_path / "run")
    assert str(tmp_path / "run") in str(caught.value)


def test_parquet_whose_strings_are_no_utf8_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    pq.write_table(pa.table({"query_id": ["q"], "doc_id": raw, "score": [1.0]}), tmp_path / "run")
    with pytest.raises(UserError, match="damaged"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    "cbor",
    [
        b"",
        bytes.fromhex("a1617881"),  # {"x": [ and then nothing
        bytes.fromhex("1c"),  # a reserved length
        bytes.fromhex("ffff"),  # an end without a beginning
        bytes.fromhex("a161ff01"),  # a key that is no UTF-8
        bytes.fromhex("a1a101020a"),  # a map as a key
        bytes.fromhex("d82301"),  # a regular expression that is a number
        bytes.fromhex("5bffffffffffffffff"),  # a string of 2**64 - 1 bytes
        bytes.fromhex("9bffffffffffffffff"),  # a list as long
        b"\x81" * 100_000,  # lists in lists
    ],
)
def test_damaged_cbor_is_refused(tmp_path: Path, cbor: bytes) -> None:
    import lz4.frame

    (tmp_path / "run").write_bytes(lz4.frame.compress(lz4.frame.compress(cbor)))
    with pytest.raises(UserError, match=r"run is not a whole LZ4 file|run: expected"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"query_id": ["7"], "doc_id": [7], "score": [1.0]}, "doc_id holds int64"),
        ({"query_id": ["7"], "doc_id": [None], "score": [1.0]}, "doc_id"),
        ({"query_id": ["7", "8"], "doc_id": ["a", None], "score": [1.0, 1.0]}, "1 rows have no doc_id"),
        ({"query_id": ["7"], "doc_id": ["a\0"], "score": [1.0]}, "NUL"),
        ({"query": ["7"], "doc_id": ["a"], "score": [1.0]}, "no column query_id"),
        ({"query_id": ["7"], "doc_id": ["a"], "score": ["1"]}, "score"),
        ({"query_id": ["7"], "doc_id": ["a"], "score": [float("nan")]}, "'7'.*'a'.*finite"),
        ({"query_id": ["7", "7"], "doc_id": ["a", "a"], "score": [1.0, 2.0]}, "'7'.*'a'.*more than once"),
    ],
)
def test_bad_parquet_is_refused(tmp_path: Path, columns: dict[str, list[object]], word: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / "run")
    with pytest.raises(UserError, match=word):
        read_run(tmp_path / "run")


def test_ranx_files_in_and_out(tmp_path: Path) -> None:
    """With the functions that ranx's `Run.save` and `Run.from_file` call; its numba classes cost seconds to compile."""
    from ranx.io import load_json, save_json, save_lz4

    save_json(NUMBERS, tmp_path / "theirs.json")
    save_lz4(NUMBERS, tmp_path / "theirs.lz4")
    assert read_run(tmp_path / "theirs.json").to_dict() == NUMBERS
    assert read_run(tmp_path / "theirs.lz4").to_dict() == NUMBERS
    write_run(Run.of(NUMBERS), tmp_path / "ours.json", Form.RANX)
    assert load_json(tmp_path / "ours.json") == NUMBERS
    (tmp_path / "cut.lz4").write_bytes((tmp_path / "theirs.lz4").read_bytes()[:20])
    save_lz4({"q": {"d": 1.0, 7: 2.0}}, tmp_path / "typed.lz4")
    for name, word in [("cut.lz4", "LZ4"), ("typed.lz4", "id 7 is not a string")]:
        with pytest.raises(UserError, match=word):
            read_run(tmp_path / name)


@pytest.mark.slow
def test_ranx_itself_writes_what_we_read_and_reads_what_we_write(tmp_path: Path) -> None:
    import ranx

    scores = {"q1": {"d/1": 0.5, "d2": 0.25}, "q2": {"dé": 2.0}}
    theirs = ranx.Run(scores, name="theirs")
    for suffix in ("json", "lz4", "parquet", "trec"):
        theirs.save(str(tmp_path / f"theirs.{suffix}"))
        assert read_run(tmp_path / f"theirs.{suffix}").to_dict() == scores
    for form, name in [(Form.RANX, "ours.json"), (Form.TREC, "ours.trec")]:
        write_run(Run.of(scores), tmp_path / name, form)
        assert ranx.Run.from_file(str(tmp_path / name)).to_dict() == scores


def test_nothing_is_written_when_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown form"):
        write_run(Run.of({"q": {"d": 1.0}}), tmp_path / "run", "csv")
    assert list(tmp_path.iterdir()) == []


def test_a_model_file_is_no_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "me/mine"')
    with pytest.raises(UserError, match="is a model file, not a run"):
        read_run(file)
