"""The readers of a task's files: every form of them, odd ids, and damage that is named by file and line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from obliq_eval.data.files import odd_grades, read_exclusions, read_groups, read_jsonl, read_qrels, read_queries
from obliq_eval.errors import UserError
from obliq_eval.records import Judgments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROWS = [("q 1", "007", "1"), ("q 1", "a/b___c", "0"), ('q"é"', "7", "2")]
JUDGED = {"q 1": {"007": 1, "a/b___c": 0}, 'q"é"': {"7": 2}}
PLAIN = [("q1", "007", "1"), ("q1", "a/b", "0"), ("qé", "7", "2")]  # ids that a TREC file can hold


def write(path: Path, content: str | bytes) -> Path:
    """Write a file byte for byte and return its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def tsv(*rows: tuple[str, ...], end: str = "\n") -> str:
    """Return rows as TAB-separated lines."""
    return "".join("\t".join(row) + end for row in rows)


HYPHEN = ("query-id", "corpus-id", "score")
UNDERSCORE = ("query_id", "corpus_id", "score")
FORMS = {
    "LF": tsv(*ROWS),
    "CRLF": tsv(*ROWS, end="\r\n"),
    "CRLF and header": tsv(HYPHEN, *ROWS, end="\r\n"),
    "byte-order mark": "\ufeff" + tsv(*ROWS),
    "byte-order mark and header": "\ufeff" + tsv(UNDERSCORE, *ROWS),
    "hyphen header": tsv(HYPHEN, *ROWS),
    "underscore header": tsv(UNDERSCORE, *ROWS),
    "header in capitals": tsv(("Query-ID", "Corpus-ID", "Score"), *ROWS),
    "header with spaces": "query-id corpus-id score\n" + tsv(*ROWS),
    "four TREC columns": tsv(*((q, "0", d, g) for q, d, g in ROWS)),
    "four TREC columns and header": tsv(("qid", "iter", "docno", "rel"), *((q, "Q0", d, g) for q, d, g in ROWS)),
    "no line end after the last": tsv(*ROWS).rstrip("\n"),
    "blank lines": "\n" + tsv(*ROWS).replace("\n", "\n\n"),
    "grades with a fraction of zero": tsv(*((q, d, f"{g}.0") for q, d, g in ROWS)),
    "grades with spaces": tsv(*((q, d, f" {g} ") for q, d, g in ROWS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_qrels_gives_the_same_judgments(form: str, tmp_path: Path) -> None:
    assert read_qrels(write(tmp_path / "qrels.tsv", FORMS[form])) == Judgments(JUDGED)


@pytest.mark.parametrize("gap", [" ", "   "])
def test_trec_with_spaces(gap: str, tmp_path: Path) -> None:
    path = write(tmp_path / "q.txt", "".join(gap.join((q, "0", d, g)) + "\n" for q, d, g in PLAIN))
    assert read_qrels(path) == Judgments({"q1": {"007": 1, "a/b": 0}, "qé": {"7": 2}})


def test_trec_with_spaces_keeps_a_line_separator_inside_an_id(tmp_path: Path) -> None:
    path = write(tmp_path / "q.txt", "q\u2028 0 d\u00a0x 1\n")
    assert read_qrels(path).grades == {"q\u2028": {"d\u00a0x": 1}}


@pytest.mark.parametrize(
    ("content", "line", "shown"),
    [
        ("q1,d1,1\n", 1, "q1,d1,1"),
        ("q1 d1 1\n", 1, "q1 d1 1"),
        (tsv(("q1", "d1")), 1, "q1\\td1"),
        (tsv(HYPHEN, *ROWS, ("q1", "d1")), 5, "q1\\td1"),
        (tsv(*ROWS, HYPHEN), 4, "query-id"),
        (tsv(*ROWS, ("q2", "d2", "relevant")), 4, "relevant"),
        (tsv(*ROWS, ("q2", "0", "d2", "1")), 4, "q2\\t0"),
        (tsv(("q1", "0", "d1", "1"), ("q2", "d2", "1")), 2, "q2"),
        ("q 1 0 d1 1\n", 1, "q 1 0 d1 1"),
        (tsv(("q1", "Q0", "d1", "1", "9.5", "bm25")), 1, "bm25"),
        ('{"q1": {"d1": 1}}\n', 1, "{"),
        (tsv(("topic", "document", "judgment"), *ROWS), 1, "topic"),
        ("q1\td1\t1\rq2\td2\t1\r", 1, "q1"),  # lone CRs end no line
    ],
)
def test_neither_form_is_refused_with_its_first_bad_line(content: str, line: int, shown: str, tmp_path: Path) -> None:
    path = write(tmp_path / "qrels.tsv", content)
    with pytest.raises(UserError) as caught:
        read_qrels(path)
    assert f"{path}, line {line}: expected three TAB-separated columns" in str(caught.value)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fractions_are_refused_all_at_once_and_one_point_nought_is_one(tmp_path: Path) -> None:
    rows = [("q", "a", ".9"), ("q", "b", "1.5"), ("q", "c", "1.0"), ("q", "d", "nan"), ("q", "e", "inf")]
    with pytest.raises(UserError) as caught:
        read_qrels(write(tmp_path / "qrels.tsv", tsv(*rows)))
    told = str(caught.value)
    assert "qrels.tsv: 4 problems" in told
    assert [f"document {d!r}" in told for d in "abcde"] == [True, True, False, True, True]
    assert read_qrels(write(tmp_path / "one.tsv", tsv(rows[2]))).grades == {"q": {"c": 1}}


def test_ids_and_grades_that_trec_eval_cannot_take_are_refused_all_at_once(tmp_path: Path) -> None:
    rows = [
        ("q\0", "a", "1"), ("q", "b\0c", "1"), ("q", "obliq:unanswered", "1"), ("q", "d", "300000000"),
        ("q", "e", "1_0"), ("q", "f", "\u0661"), ("q", "g", "1000"),
    ]  # fmt: skip
    with pytest.raises(UserError) as caught:
        read_qrels(write(tmp_path / "qrels.tsv", tsv(*rows)))
    heading, *told = str(caught.value).splitlines()
    assert heading == f"{tmp_path / 'qrels.tsv'}: 6 problems"
    words = [
        "'q\\x00' holds a NUL",
        "'b\\x00c' holds a NUL",
        "reserved",
        "document 'd'",
        "document 'e'",
        "document 'f'",
    ]
    assert [word in line for word, line in zip(words, told, strict=True)] == [True] * 6


def test_a_pair_judged_twice_must_agree(tmp_path: Path) -> None:
    assert read_qrels(write(tmp_path / "a", tsv(("q", "d", "1"), ("q", "d", "1")))).grades == {"q": {"d": 1}}
    with pytest.raises(UserError, match="judged both 1 and 2"):
        read_qrels(write(tmp_path / "b", tsv(("q", "d", "1"), ("q", "d", "2"))))


def test_negative_grades_are_counted(tmp_path: Path) -> None:
    judged = read_qrels(
        write(tmp_path / "q", tsv(("q", "a", "-1"), ("q", "b", "0"), ("r", "c", "-2"), ("r", "d", "3")))
    )
    assert odd_grades(judged) == 2
    assert judged.queries == ("r",)


NUMBERS = ("007", "7", "1e3", "1000", "-5")
ODD = (
    *NUMBERS,
    "a b",
    "a/b\\c",
    "it's",
    'q"uote',
    "é",
    "e\u0301",
    "x\u2028y",
    "x\u0085y",
    "x\ry",
    "x\r",
    "\ufeff",
    " ",
)
# A TAB or LF would end a column or a line; a half of a surrogate pair cannot be written.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n"), min_size=1, max_size=6)
ids = st.sampled_from(ODD) | words
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def through(read: Callable[[Path], Any], content: str) -> Any:
    """Write a file, read it and delete it."""
    with tempfile.TemporaryDirectory() as folder:
        return read(write(Path(folder) / "file", content))


@settings(max_examples=100, deadline=None)
@given(
    grades=st.dictionaries(ids, st.dictionaries(ids, st.integers(-2, 9), min_size=1, max_size=4), max_size=4),
    trec=st.booleans(),
)
@example(grades={i: dict.fromkeys(NUMBERS, 1) for i in NUMBERS}, trec=False)
@example(grades={i: {i: 1} for i in ODD}, trec=True)
def test_ids_in_qrels_come_back_verbatim(grades: Mapping[str, Mapping[str, int]], *, trec: bool) -> None:
    rows = [(q, d, str(g)) for q, docs in grades.items() for d, g in docs.items()]
    four = [(q, "0", d, g) for q, d, g in rows]
    content = tsv(("qid", "0", "doc", "rel"), *four) if trec else tsv(HYPHEN, *rows)
    assert through(read_qrels, content).grades == grades


@settings(max_examples=100, deadline=None)
@given(
    rows=st.dictionaries(st.sampled_from(ODD) | names, text, max_size=5),
    ascii_only=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
)
@example(rows=dict.fromkeys(ODD, "x\u2028\r\ty"), ascii_only=False, end="\r\n")
def test_jsonl_comes_back_verbatim(rows: Mapping[str, str], *, ascii_only: bool, end: str) -> None:
    objects = [{"_id": i, "text": t} for i, t in rows.items()]
    content = "".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in objects)
    assert through(lambda path: list(read_jsonl(path)), content) == list(rows.items())
    assert through(read_queries, "\ufeff" + content) == rows


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(names, st.frozensets(names, max_size=3), max_size=4))
def test_exclusions_come_back_verbatim_and_empty_ones_are_none(excluded: Mapping[str, frozenset[str]]) -> None:
    content = json.dumps({q: sorted(d) for q, d in excluded.items()}, ensure_ascii=False)
    assert through(read_exclusions, content) == {q: d for q, d in excluded.items() if d}


def test_a_title_goes_before_the_text(tmp_path: Path) -> None:
    rows = [
        {"_id": "1", "title": "On Fear", "text": "We fear."},
        {"_id": "2", "title": "", "text": " kept "},
        {"_id": "3", "title": None, "text": "plain"},
        {"_id": "4", "title": "Only", "text": ""},
        {"_id": "5", "text": "", "more": [1]},
    ]
    path = write(tmp_path / "c.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_jsonl(path)) == [
        ("1", "On Fear We fear."), ("2", " kept "), ("3", "plain"), ("4", "Only"), ("5", ""),
    ]  # fmt: skip


GOOD = '{"_id": "1", "text": "one"}\n'


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"_id": "2", "te', "cut off"),
        ("[" * 100_000, "not a JSON object"),
        ('{"_id": ' + "9" * 5_000 + "}", "not a JSON object"),
        ('["2", "two"]', "expected an object"),
        ('{"id": "2", "text": "two"}', 'expected an object with "_id"'),
        ('{"_id": "2"}', 'expected an object with "_id" and "text"'),
        ('{"_id": 7, "text": "two"}', "must be strings"),
        ('{"_id": null, "text": "two"}', "must be strings"),
        ('{"_id": "2", "text": null}', "must be strings"),
        ('{"_id": "2", "title": 3, "text": "two"}', "must be strings"),
        ('{"_id": "2\\u0000", "text": "two"}', "NUL"),
        ('{"_id": "2", "_id": "3", "text": "two"}', "a key occurs more than once"),
        ('{"_id": "2", "text": "two", "text": "three"}', "a key occurs more than once"),
        ('[["_id", "2"], ["text", "two"]]', "expected an object"),
        ('{"_id": "2", "text": "\\ud83d alone"}', "surrogate"),
        ('{"_id": "\\uDE00", "text": "two"}', "surrogate"),
    ],
)
def test_a_damaged_line_is_named(bad: str, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.jsonl", GOOD + "\n" + bad)
    with pytest.raises(UserError) as caught:
        list(read_jsonl(path))
    assert f"{path}, line 3: " in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_whole_surrogate_pair_is_one_character(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", '{"_id": "1", "text": "\\ud83d\\ude00"}')
    assert list(read_jsonl(path)) == [("1", "\U0001f600")]


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    # Far enough into the file that no reader's buffer starts with it.
    path = write(tmp_path / "c.jsonl", GOOD.encode() * 2_000 + '{"_id": "x", "text": "é"}'.encode("latin-1"))
    with pytest.raises(UserError, match=r"line 2001: not UTF-8"):
        list(read_jsonl(path))


def test_all_repeated_query_ids_are_named(tmp_path: Path) -> None:
    content = "".join(json.dumps({"_id": i, "text": "t"}) + "\n" for i in ("a", "b", "a", "c", "b"))
    with pytest.raises(UserError) as caught:
        read_queries(write(tmp_path / "queries.jsonl", content))
    assert "2 problems" in str(caught.value)
    assert "'a' occurs more than once" in str(caught.value)
    assert "'b' occurs more than once" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "expected an object"),
        ('"q"', "expected an object"),
        ('{"q": "d"}', "{query id: [document ids]}"),
        ('{"q": {"d": 1}}', "{query id: [document ids]}"),
        ('{"q": [1], "r": [null], "s": ["x"]}', "2 problems"),
        ('{"q": ["d1"], "r": [], "q": ["d2"]}', "query 'q' occurs more than once"),
        ('{"q": ["d1", "d\\u0000"], "r": ["d1"]}', "query 'q' excludes what is no id: the id 'd\\x00' holds a NUL"),
        ('{"q\\u0000": ["d1"]}', "'q\\x00' holds a NUL"),
        ('{"q": ["d1"', "cut off"),
        ('{"q": ["\\ud800"]}', "surrogate"),
        (b'{"q": ["\xe9"]}', "UTF-8"),
    ],
)
def test_exclusions_of_another_form(content: str | bytes, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "excluded.json", content)
    with pytest.raises(UserError) as caught:
        read_exclusions(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["[]", '{"q": 1}', '{"q\\u0000": "g"}', '{"q": ["g"]}', '{"q": "g", "q": "h"}', '{"q": "g"', "", "\ufeff"],
)
def test_groups_of_another_form(content: str, tmp_path: Path) -> None:
    path = write(tmp_path / "groups.json", content)
    with pytest.raises(UserError, match=r"groups\.json"):
        read_groups(path)


def test_groups_and_exclusions_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read_groups(write(tmp_path / "g.json", '\ufeff{"q 1": "Ada"}')) == {"q 1": "Ada"}
    assert read_exclusions(write(tmp_path / "e.json", '\ufeff{"q 1": ["a", "a"]}')) == {"q 1": frozenset("a")}


@pytest.mark.parametrize("read", [read_queries, read_qrels, read_exclusions, read_groups])
def test_a_missing_file_or_a_folder_in_its_place(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*absent: No such file"):
        read(tmp_path / "absent")
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)
