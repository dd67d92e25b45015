"""`obliq index` and `obliq search` with real models: what is read, told, printed and refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_models.commands.search import shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUNNER = CliRunner()
NOTES = {
    "pets/cats.txt": "The cat sleeps on the warm roof.",
    "pets/old dogs.md": "Dogs bark at night.\n\nThe neighbours complain.",
    "naïve.TXT": "A sailing ship crosses the ocean.",
    "007.txt": "Secret agents drink martinis.",
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of text files, with a hidden one and one of another kind."""
    folder = tmp_path / "notes"
    for name, text in {**NOTES, ".hidden.txt": "cat", ".git/cat.txt": "cat", "picture.png": "cat"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def run(*arguments: object, stdin: str | bytes | None = None) -> Any:
    return RUNNER.invoke(app, [str(argument) for argument in arguments], input=stdin)


def answers(*arguments: object, stdin: str | None = None) -> Any:
    done = run("search", *arguments, "--json", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def ids(answer: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in answer["hits"]]


def test_a_folder_of_texts_is_indexed_under_its_paths(notes: Path, tmp_path: Path) -> None:
    done = run("index", notes, "-m", "bm25", "-o", tmp_path / "i", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["documents"], told["model"], told["dims"]) == (4, "obliq/bm25", None)
    assert "1 files that are no .txt or .md files were left out" in done.stderr
    [answer] = answers(tmp_path / "i", "cat dogs ship agents")
    assert sorted(ids(answer)) == sorted(NOTES)
    assert {hit["id"]: hit["text"] for hit in answer["hits"]} == NOTES


def test_a_table_shows_ranks_and_beginnings(notes: Path, tmp_path: Path) -> None:
    run("index", notes, "-m", "bm25", "-o", tmp_path / "i")
    done = run("search", tmp_path / "i", "dogs neighbours", "--snippet", "30")
    [line] = [line for line in done.stdout.splitlines() if "pets/old dogs.md" in line]
    assert line.split()[0] == "1"
    assert line.rstrip().endswith("Dogs bark at night. The neigh…")
    assert run("search", tmp_path / "i", "xylophone").stdout == "xylophone: no document is an answer\n"


def test_vectors_find_what_shares_no_word(notes: Path, tmp_path: Path) -> None:
    done = run("index", notes, "-m", "minilm", "-o", tmp_path / "i", "--storage", "float16", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["dims"], told["storage"], told["distinct"]) == (384, "float16", 4)
    [kitten, boat] = answers(tmp_path / "i", "-k", 1, stdin="a kitten naps\n\na boat at sea\n")
    assert (kitten["query"], kitten["text"], ids(kitten)) == ("1", "a kitten naps", ["pets/cats.txt"])
    assert ids(boat) == ["naïve.TXT"]
    [other] = answers(tmp_path / "i", "a kitten naps", "--exclude", "pets/cats.txt", "--exclude", "007.txt")
    assert sorted(ids(other)) == ["naïve.TXT", "pets/old dogs.md"]
    before = ids(kitten)
    done = run("index", notes, "-m", "bm25", "-o", tmp_path / "i")
    assert (done.exit_code, "--force" in done.stderr) == (2, True)
    assert ids(answers(tmp_path / "i", "a kitten naps", "-k", 1)[0]) == before


def test_a_file_of_queries(notes: Path, tmp_path: Path) -> None:
    run("index", notes, "-m", "bm25", "-o", tmp_path / "i")
    (tmp_path / "q.jsonl").write_text('{"_id": "007", "text": "cat"}\n{"id": "7", "text": "ship"}\n')
    (tmp_path / "q.txt").write_text("\ufeffcat\n\nship\n", "utf-8")
    named, numbered = (answers(tmp_path / "i", "--queries", tmp_path / name) for name in ("q.jsonl", "q.txt"))
    assert {answer["query"]: ids(answer) for answer in named} == {"007": ["pets/cats.txt"], "7": ["naïve.TXT"]}
    assert {answer["query"]: ids(answer) for answer in numbered} == {"1": ["pets/cats.txt"], "3": ["naïve.TXT"]}
    table = run("search", tmp_path / "i", "--queries", tmp_path / "q.jsonl").stdout
    assert table.index("007: cat") < table.index("7: ship")


def test_piped_queries_are_read_as_a_file_is(notes: Path, tmp_path: Path) -> None:
    run("index", notes, "-m", "bm25", "-o", tmp_path / "i")
    piped = run("search", tmp_path / "i", "--json", stdin=b"\xef\xbb\xbfcat\r\n\r\nship\r\n")
    assert {one["query"]: (one["text"], ids(one)) for one in json.loads(piped.stdout)} == {
        "1": ("cat", ["pets/cats.txt"]),
        "3": ("ship", ["naïve.TXT"]),
    }
    refused = run("search", tmp_path / "i", stdin=b"cat\nna\xefve\n")
    assert (refused.exit_code, "the standard input, line 2: not UTF-8" in refused.stderr) == (2, True)


def test_a_jsonl_file_may_call_its_ids_id(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(
        '{"id": "a/b", "text": "red", "title": "Fox"}\n{"_id": "b", "text": "grey wolf"}\n'
    )
    assert run("index", tmp_path / "d.jsonl", "-m", "bm25", "-o", tmp_path / "i").exit_code == 0
    assert answers(tmp_path / "i", "fox")[0]["hits"][0]["text"] == "Fox red"


def test_of_a_task_only_the_documents_are_read(write_task: Callable[..., Path], tmp_path: Path) -> None:
    folder = write_task({"1": "red fox", "2": "grey wolf"}, {"q": "fox"}, {"q": {"1": 1}})
    (folder / "queries+qrels" / "queries.jsonl").write_text("not read")
    assert run("index", folder, "-m", "bm25", "-o", tmp_path / "i").exit_code == 0
    assert ids(answers(tmp_path / "i", "wolf")[0]) == ["2"]
    assert run("index", "OBLIQ-Mini-Math", "-m", "bm25", "-o", tmp_path / "math").exit_code == 0
    assert ids(answers(tmp_path / "math", "prime", "-k", 1)[0])[0].startswith("math-")


def test_the_folder_is_named_after_both(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("index", "notes", "-m", "bm25").exit_code == 0
    assert (tmp_path / "notes.bm25.index").is_dir()


def test_the_recall_of_an_approximate_index_is_told(notes: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra `ann` is not installed")
    done = run("index", notes, "-m", "minilm", "-o", tmp_path / "i", "--ann")
    assert "recall@10 1.000 and recall@100 1.000 against exact search, over 4 documents" in done.stdout
    exact, near = (answers(tmp_path / "i", "a kitten", *more) for more in ((), ("--ann",)))
    assert ids(exact[0]) == ids(near[0])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("index", "nowhere", "-m", "bm25"), "neither a task nor a folder nor a file"),
        (("index", "OBLIQ-Mini-Mat", "-m", "bm25"), 'did you mean "OBLIQ-Mini-Math"?'),
        (("index", "notes", "-m", "bm52"), 'did you mean "bm25"?'),
        (("index", "notes/picture.png", "-m", "bm25"), "neither a folder nor a .jsonl file"),
        (("index", "notes/.git", "-m", "bm25", "-o", "notes"), "choose another folder"),
        (("index", "empty", "-m", "bm25"), "holds no documents"),
        (("index", "notes", "-m", "bm25", "--ann"), "no vectors"),
        (("index", "notes", "-m", "minilm", "--storage", "float61"), 'did you mean "float16"?'),
        (("index", "notes", "-m", "bm25", "--engine", "pool"), "leave --engine pool out"),
        (("index", "notes", "-m", "bm25", "--engine", "poll"), 'did you mean "pool"?'),
        (("index", "notes", "-m", "bm25", "--workers", "2"), "--workers is for --engine pool and ray"),
        (("index", "twice.jsonl", "-m", "bm25"), "1 documents repeat an id, among them 'a'"),
        (("index", "latin.jsonl", "-m", "bm25"), "not UTF-8"),
        (("search", "notes", "cat"), "is no index"),
        (("search", "nowhere", "cat"), "does not exist"),
        (("search", "i", " "), "the query is empty"),
        (("search", "i", "cat", "--queries", "q.txt"), "exclude each other"),
        (("search", "i", "cat", "--exclude", "dog"), "no document with the id 'dog'"),
        (("search", "i", "cat", "--ann"), "no approximate index"),
        (("search", "i", "cat", "-m", "bm25-okapi"), "was indexed with obliq/bm25, which this is not"),
        (("search", "i"), "there is no query"),
        (("search", "i", "--queries", "nowhere.txt"), "cannot read nowhere.txt"),
        (("search", "i", "--queries", "blank.jsonl"), "query 'b' is empty"),
        (("search", "i", "\udcff"), "half of a surrogate pair"),
        (("index", "notes", "-m", "minilm", "--device", "gpu"), "there is no device 'gpu' here"),
        (("index", "notes", "-m", "minilm", "--device", "99"), "there is no device '99' here"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: tuple[str, ...], told: str, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice.jsonl").write_text('{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}\n')
    (tmp_path / "blank.jsonl").write_text('{"_id": "a", "text": "x"}\n{"_id": "b", "text": " "}\n')
    (tmp_path / "latin.jsonl").write_bytes('{"_id": "a", "text": "naïve"}\n'.encode("latin-1"))
    if arguments[:2] == ("search", "i"):
        run("index", notes, "-m", "bm25", "-o", "i")
    done = run(*arguments, stdin="")
    assert done.exit_code == 2
    assert told in done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == [done.stderr.splitlines()[-1]]
    assert not list(tmp_path.glob("*.index"))


def test_a_terminal_is_answered_line_by_line(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard input is a pseudo-terminal, as a person would have it; Ctrl-D ends."""
    import os
    import pty
    import sys

    from obliq_models.commands.search import search

    run("index", notes, "-m", "bm25", "-o", tmp_path / "i")
    ours, theirs = pty.openpty()
    os.write(ours, b"cat\n\nxylophone\nship\n\x04")
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        search(tmp_path / "i", k=10, exclude=["pets/cats.txt"], ann=False, as_json=False)
    os.close(ours)
    shown = capsys.readouterr().out
    assert shown.count("no document is an answer") == 2  # "cat" is excluded, and nobody plays the xylophone
    assert "naïve.TXT" in shown


def test_a_text_is_cut_on_one_line() -> None:
    assert shorten("one  two\nthree", 8) == "one two…"
    assert shorten(" one\n", 3) == "one"
