"""Corpora on disk: one conversion per key, whole or not at all, whatever ends it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from obliq_eval.data import corpus
from obliq_eval.data.corpus import CorpusFacts, ids_of, open_corpus, table_of
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = [("007", "one"), ("7", "two"), ("a/b c", "one"), ("é\u2028", ""), ("1e3", " \n")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def jsonl(path: Path, rows: list[tuple[str, str]]) -> Path:
    """Write rows as JSONL and return the path."""
    path.write_text("".join(json.dumps({"_id": i, "text": t}) + "\n" for i, t in rows), encoding="utf-8")
    return path


def left_in(home: Path) -> list[str]:
    """Return the files below the home folder, apart from locks."""
    return sorted(path.name for path in home.rglob("*") if path.is_file() and path.name != "lock")


def python(code: str, *arguments: str, home: Path) -> subprocess.Popen[str]:
    """Start another process that shares this home."""
    env = {**os.environ, "OBLIQ_HOME": str(home), "OBLIQ_MTEB_HOOK": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_rows_come_back_verbatim_and_are_counted(tmp_path: Path) -> None:
    """Five rows; "one" occurs twice, so four texts differ; "" and white space are empty."""
    table, facts = open_corpus(jsonl(tmp_path / "c.jsonl", ROWS), "k")
    assert table.column_names == ["id", "text"]
    assert list(zip(table["id"], table["text"], strict=True)) == ROWS
    assert list(ids_of(table)) == [i for i, _ in ROWS]
    assert facts == CorpusFacts(documents=5, distinct_texts=4, empty_texts=2, duplicate_ids=0)
    assert table.cache_files  # it lies on disk


def test_repeated_ids_are_counted_and_each_is_an_example_once(tmp_path: Path) -> None:
    rows = [(i, "t") for i in ("a", "b", "a", "a", "c", "b")] + [(f"d{n % 20}", "t") for n in range(40)]
    facts = open_corpus(jsonl(tmp_path / "c.jsonl", rows), "k")[1]
    # a twice more, b once more, each of d0 ... d19 once more
    assert (facts.documents, facts.duplicate_ids) == (46, 23)
    assert facts.examples == ("a", "b", *(f"d{n}" for n in range(8)))


def test_more_rows_than_a_batch_keep_their_order() -> None:
    rows = [(str(n), str(n * n)) for n in range(2 * corpus.BATCH_ROWS + 1)]
    table, facts = table_of(lambda: rows, "k", "rows")
    assert list(zip(table["id"], table["text"], strict=True)) == rows
    assert facts.documents == len(rows)


def test_a_key_is_converted_once_and_another_key_again(tmp_path: Path) -> None:
    calls = []

    def rows() -> list[tuple[str, str]]:
        calls.append(1)
        return [*ROWS, ("007", "")]

    first = table_of(rows, "k", "rows")
    again = table_of(rows, "k", "rows")
    assert len(calls) == 1
    assert again[1] == first[1] == CorpusFacts(6, 4, 3, 1, ("007",))
    assert list(again[0]) == list(first[0])
    table_of(rows, "k2", "rows")
    assert len(calls) == 2
    # The file is not looked at again: its key vouches for it.
    path = jsonl(tmp_path / "c.jsonl", ROWS)
    open_corpus(path, "k3")
    path.unlink()
    assert open_corpus(path, "k3")[1].documents == 5


@pytest.mark.parametrize(
    "damage", ["corpus.arrow cut", "corpus.arrow empty", "corpus.arrow short", "facts.json cut", "facts.json gone"]
)
def test_a_damaged_table_is_converted_again(damage: str, home: Path) -> None:
    rows = [(str(n), "text " * 50) for n in range(3 * corpus.BATCH_ROWS)]
    table_of(lambda: rows, "k", "rows")
    name, how = damage.split()
    path = next(home.rglob(name))
    if how == "gone":
        path.unlink()
    elif how == "short":  # a whole stream, but of one batch less
        with pa.memory_map(str(path)) as file:
            batches = list(pa.ipc.open_stream(file))
            shorter = pa.BufferOutputStream()
            with pa.ipc.new_stream(shorter, batches[0].schema) as writer:
                for batch in batches[:-1]:
                    writer.write_batch(batch)
        path.write_bytes(shorter.getvalue())
    else:
        path.write_bytes(path.read_bytes()[: 0 if how == "empty" else path.stat().st_size // 2])
    assert list(table_of(lambda: rows, "k", "rows")[0]["id"]) == [i for i, _ in rows]
    assert left_in(home) == ["corpus.arrow", "facts.json"]


def test_no_document_is_an_error_and_leaves_nothing(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\n\n")
    with pytest.raises(UserError, match=r"c\.jsonl holds no document"):
        open_corpus(path, "k")
    assert left_in(home) == []


@pytest.mark.parametrize("identifier", ["obliq:unanswered", "a\0b", "\ud800", 7])
def test_what_cannot_be_a_document_s_id_is_refused_and_leaves_nothing(identifier: Any, home: Path) -> None:
    with pytest.raises(UserError, match=r"rows, document 6: the (document )?id .*(reserved|NUL|Unicode|not a string)"):
        table_of(lambda: [*ROWS, (identifier, "text")], "k", "rows")
    assert left_in(home) == []


def test_the_reserved_id_is_refused_in_a_corpus_and_taken_in_a_text(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "c.jsonl", [("d", "obliq:unanswered"), ("obliq:unanswered", "text")])
    with pytest.raises(UserError, match=r"c\.jsonl, document 2: the document id 'obliq:unanswered' is reserved"):
        open_corpus(path, "k")
    assert open_corpus(jsonl(tmp_path / "d.jsonl", [("d", "obliq:unanswered\0")]), "k2")[1].documents == 1


def test_a_damaged_line_leaves_nothing(tmp_path: Path, home: Path) -> None:
    path = jsonl(tmp_path / "c.jsonl", ROWS * 2_000)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="line 10000: not a JSON object"):
        open_corpus(path, "k")
    assert left_in(home) == []


@pytest.mark.parametrize("moment", ["documents", "facts"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    moment: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def rows() -> Iterator[tuple[str, str]]:
        yield from ROWS
        if moment == "documents":
            full()

    if moment == "facts":
        monkeypatch.setattr(corpus, "asdict", full)
    with pytest.raises(UserError) as caught:
        table_of(rows, "k", "rows")
    assert "No space left on device" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert left_in(home) == []


LIMITED = """
import resource, sys
from obliq_eval.data.corpus import table_of
from obliq_eval.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    table_of(lambda: ((str(n), "text " * 20) for n in range(5_000)), "k", "rows")
except UserError as error:
    print(error)
"""


def test_a_write_that_the_system_refuses_is_one_sentence_and_leaves_nothing(home: Path) -> None:
    """A limit on the size of a file stands for the end of the disk: the kernel refuses the write."""
    out, err = python(LIMITED, home=home).communicate(timeout=120)
    assert out.startswith("cannot write "), err
    assert len(out.splitlines()) == 1
    assert left_in(home) == []


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write .*set OBLIQ_HOME"):
        table_of(lambda: ROWS, "k", "rows")


SLOW = """
import sys, time
from obliq_eval.data.corpus import table_of

def rows():
    print("begun", flush=True)
    for n in range(5_000):
        yield str(n), "text"
    print("half", flush=True)
    time.sleep(float(sys.argv[1]))
    yield "last", "text"

print(table_of(rows, "k", "rows")[1].documents, flush=True)
"""


def test_killed_in_the_middle_then_done_again(home: Path) -> None:
    child = python(SLOW, "600", home=home)
    assert child.stdout is not None
    assert [child.stdout.readline(), child.stdout.readline()] == ["begun\n", "half\n"]
    assert "facts.json" not in left_in(home)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert not list(home.rglob("table"))
    assert table_of(lambda: ROWS, "k", "rows")[1].documents == 5
    assert left_in(home) == ["corpus.arrow", "facts.json"]  # and what the killed process had written is gone
    assert not [path for path in home.rglob("*") if path.name.startswith(".")]


def test_two_processes_convert_once(home: Path) -> None:
    first = python(SLOW, "1", home=home)
    assert first.stdout is not None
    assert [first.stdout.readline(), first.stdout.readline()] == ["begun\n", "half\n"]
    others = [python(SLOW, "0", home=home) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in (first, *others)]
    assert [out for out, _ in outputs] == ["5001\n"] * 3, outputs  # "begun" was printed by the first alone
    assert left_in(home) == ["corpus.arrow", "facts.json"]
