"""The embedding store: what misses, what is encoded once, what a kill and a damaged disk cost."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_models import shards, stores
from obliq_models.embeddings import Embeddings, embed
from obliq_models.encoders.base import Encoded, Encoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_models.encoders.base import Role

DIMS = 4
TEXTS = [f"text {number}" for number in range(10)]
SETTINGS: dict[str, Any] = {
    "prefix": "passage: ",
    "length": 512,
    "dtype": "float32",
    "normalize": True,
    "adapter": {"name": "org/adapter", "revision": "abc"},
}


class Hashing(Encoder):
    """Makes a vector out of the hash of everything that may change it, and notes what it is asked."""

    def __init__(self, revision: str = "1", name: str = "org/hashing", **settings: Any) -> None:
        super().__init__(name, revision, DIMS)
        self.given = {**SETTINGS, **settings}
        self.calls: list[list[str]] = []

    def settings(self, role: Role) -> Mapping[str, Any]:  # noqa: ARG002 -- alike for both roles
        return self.given

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
        """A text of n characters counts as n tokens, of which 7 are read."""
        self.calls.append(list(texts))
        key = json.dumps(self.key(role, instruction))
        vectors = [
            np.frombuffer(hashlib.sha256((key + text).encode("utf-8", "surrogatepass")).digest()[:DIMS], np.uint8)
            for text in texts
        ]
        over = [len(text) - 7 for text in texts if len(text) > 7]
        return Encoded(np.array(vectors, np.float32), sum(min(len(t), 7) for t in texts), len(over), sum(over))

    @property
    def asked(self) -> list[str]:
        return [text for call in self.calls for text in call]


def values(vectors: Embeddings) -> list[list[float]]:
    return vectors.matrix().tolist()


def expected(texts: Sequence[str], role: Role = "document", **settings: Any) -> list[list[float]]:
    return Hashing(**settings).encode(texts, role).vectors.tolist() if texts else []


def files(home: Path) -> dict[str, bytes]:
    """Return the vectors' files by name."""
    return {path.name: path.read_bytes() for path in sorted(home.glob("embeddings/*/*.npy"))}


def test_an_identical_repeat_encodes_nothing() -> None:
    first = embed(Hashing(), TEXTS, "document", shard=3)
    encoder = Hashing()
    again = embed(encoder, TEXTS, "document", shard=3)
    assert encoder.calls == []
    assert (first.encoded, again.encoded) == (10, 0)
    assert again.counts == first.counts
    assert values(again) == values(first) == expected(TEXTS)
    assert (len(again), again.dims, again.distinct) == (10, DIMS, 10)
    assert [len(part) for part in again.shards()] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"role": "query"},
        {"instruction": "Find it: "},
        {"prefix": "query: "},
        {"revision": "2"},
        {"adapter": {"name": "org/adapter", "revision": "abd"}},
        {"adapter": None},
        {"dtype": "bfloat16"},
        {"length": 256},
        {"normalize": False},
        {"storage": "float16"},
        {"texts": [*TEXTS[:-1], "text 9 "]},
        {"texts": TEXTS[:-1]},
        {"texts": [TEXTS[1], TEXTS[0], *TEXTS[2:]]},
        {"shard": 5},
    ],
    ids=str,
)
def test_each_change_misses(change: dict[str, Any]) -> None:
    """Case 12: one change at a time."""
    base: dict[str, Any] = {"texts": TEXTS, "role": "document", "shard": 3}

    def ask(**changed: Any) -> Hashing:
        told = {**base, **changed}
        call = {name: told.pop(name) for name in ("instruction", "storage", "shard") if name in told}
        texts, role = told.pop("texts"), told.pop("role")
        encoder = Hashing(**told)
        vectors = embed(encoder, texts, role, **call)
        assert values(vectors) == Hashing(**told).encode(texts, role, call.get("instruction", "")).vectors.tolist()
        return encoder

    ask()
    assert sorted(ask(**change).asked) == sorted({**base, **change}["texts"])
    assert ask(**change).calls == []
    assert ask().calls == []


def test_a_query_and_a_document_of_one_text_share_no_vector() -> None:
    query, document = embed(Hashing(), ["a"], "query"), embed(Hashing(), ["a"], "document")
    assert query.store.folder != document.store.folder
    assert values(query) != values(document)


def test_each_distinct_text_is_encoded_once() -> None:
    """Of a, b, a, "", b, "" three are distinct; seven characters are read, and "123456789" loses two."""
    encoder = Hashing()
    texts = ["b", "a", "b", "", "123456789", "a", ""]
    vectors = embed(encoder, texts, "document", shard=2)
    assert encoder.calls == [["b", "a"], ["", "123456789"]]
    assert vectors.rows.tolist() == [0, 1, 0, 2, 3, 1, 2]
    assert vectors.rows.dtype == np.int32
    assert values(vectors) == expected(texts)
    assert vectors.counts == {
        "document texts": 7,
        "document texts encoded": 4,
        "document tokens": 1 + 1 + 0 + 7,
        "truncated document texts": 1,
        "lost document tokens": 2,
    }
    kept = Embeddings.read(stores.stored()[0])
    assert kept.rows.tolist() == vectors.rows.tolist()
    assert kept.counts == vectors.counts == kept.store.counts


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=3), max_size=12), st.integers(1, 4))
def test_any_texts_get_the_vectors_of_the_encoder(texts: list[str], size: int) -> None:
    """Nul bytes and empty texts are texts as any other."""
    encoder = Hashing()
    assert values(embed(encoder, texts, "document", shard=size)) == expected(texts)
    assert encoder.asked in (list(dict.fromkeys(texts)), [])


def test_an_empty_corpus_is_no_error() -> None:
    encoder = Hashing()
    vectors = embed(encoder, [], "document")
    assert encoder.calls == []
    assert vectors.matrix().shape == (0, DIMS)
    assert set(vectors.counts.values()) == {0}


KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from test_embeddings import TEXTS, Hashing
from obliq_models.embeddings import embed

synced, sync = [], os.fsync
def fsync(handle):
    sync(handle)
    synced.append(handle)
    if len(synced) == {syncs}:  # the file is whole under its temporary name; then half of it is lost
        os.ftruncate(handle, os.fstat(handle).st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync

class Killed(Hashing):
    def run(self, texts, role, instruction):
        if len(self.calls) == {calls}:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(texts, role, instruction)

embed(Killed(), TEXTS, "document", shard=2)
"""


@pytest.mark.parametrize(("syncs", "calls"), [(3, 9), (0, 2)], ids=["while it writes", "while it encodes"])
def test_a_killed_run_goes_on_where_it_was(
    tmp_path: Path, obliq_home: Path, monkeypatch: pytest.MonkeyPatch, syncs: int, calls: int
) -> None:
    """Case 13: of five shards two are whole when the process is killed at the third."""
    script = KILLED.format(here=str(Path(__file__).parent), syncs=syncs, calls=calls)
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(obliq_home.glob("embeddings/*/.part-*"))) == (syncs > 0)
    assert list(files(obliq_home)) == ["shard-00000.npy", "shard-00001.npy"]

    encoder = Hashing()
    vectors = embed(encoder, TEXTS, "document", shard=2)
    assert encoder.calls == [TEXTS[4:6], TEXTS[6:8], TEXTS[8:]]
    assert vectors.encoded == 6
    assert not list(obliq_home.glob("embeddings/*/.part-*"))

    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "uninterrupted"))
    whole = embed(Hashing(), TEXTS, "document", shard=2)
    assert files(obliq_home) == files(tmp_path / "uninterrupted")
    assert whole.counts == vectors.counts
    assert values(whole) == values(vectors)


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "truncated": lambda vectors, _: os.truncate(vectors, vectors.stat().st_size - 3),
    "empty": lambda vectors, _: os.truncate(vectors, 0),
    "too long": lambda vectors, _: vectors.write_bytes(vectors.read_bytes() + b"\0"),
    "another shape": lambda vectors, _: np.save(vectors, np.zeros((1, DIMS * 2), np.float32)),
    "another type": lambda vectors, _: np.save(vectors, np.zeros((4, DIMS), np.float16)),
    "a bit of the shape": lambda vectors, _: _flip(vectors, vectors.read_bytes().index(b"(2, 4)") + 1),
    "a bit of the magic": lambda vectors, _: _flip(vectors, 0),
    "gone": lambda vectors, _: vectors.unlink(),
    "no facts": lambda _, facts: facts.unlink(),
    "half the facts": lambda _, facts: os.truncate(facts, facts.stat().st_size // 2),
    "facts of another shard": lambda _, facts: facts.write_text(facts.read_text().replace('"texts": 2', '"texts": 3')),
    "facts that are no numbers": lambda _, facts: facts.write_text(facts.read_text().replace("12", '"12"')),
    "facts that are a list": lambda _, facts: facts.write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_encoded_again(damage: str, obliq_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = embed(Hashing(), TEXTS, "document", shard=2)
    before = files(obliq_home)
    shard = first.store.shards()[2]
    DAMAGES[damage](shard.vectors, shard.facts)
    with pytest.raises(UserError, match="is not whole; encode again"):
        Embeddings.read(first.store)
    encoder = Hashing()
    again = embed(encoder, TEXTS, "document", shard=2)
    assert encoder.calls == [TEXTS[4:6]]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"{shard.vectors} is not whole and is encoded again"
    ]
    assert files(obliq_home) == before
    assert again.counts == first.counts


@pytest.mark.parametrize("damage", ["gone", "damaged", "of other vectors"])
def test_a_damaged_manifest_costs_no_vector(damage: str) -> None:
    texts = [*TEXTS, TEXTS[0]]
    first = embed(Hashing(), texts, "document", shard=2)
    manifest = first.store.folder / stores.MANIFEST
    whole = manifest.read_text()
    changed = {"gone": "", "damaged": whole[:-20], "of other vectors": whole.replace("passage: ", "query: ")}
    manifest.write_text(changed[damage]) if changed[damage] else manifest.unlink()
    encoder = Hashing()
    again = embed(encoder, texts, "document", shard=2)
    assert encoder.calls == []
    assert again.counts == first.counts
    assert values(again) == values(first)
    assert stores.stored()[0].counts == first.counts


def test_lost_rows_are_written_again() -> None:
    first = embed(Hashing(), ["a", "b", "a"], "document")
    (first.store.folder / "rows.npy").unlink()
    with pytest.raises(UserError, match="encode again"):
        Embeddings.read(first.store)
    embed(Hashing(), ["a", "b", "a"], "document")
    assert Embeddings.read(first.store).rows.tolist() == [0, 1, 0]


class Given(Hashing):
    """Returns given vectors."""

    def __init__(self, vectors: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.vectors = np.array(vectors, np.float32)
        self.dims = self.vectors.shape[1]

    def run(self, *_: Any) -> Encoded:
        return Encoded(self.vectors)


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even() -> None:
    """bfloat16 has eight significant bits: above 1 a step is 1/128, so 1 + 1/256 and 1 + 3/256 lie half-way."""
    exact = [1, 1 + 1 / 256, 1 + 3 / 256, 1 + 1 / 256 + 1e-6, -1 - 1 / 256, 3e38]
    vectors = embed(Given([exact]), ["a"], "document", storage="bfloat16")
    assert values(vectors)[0][:5] == [1, 1, 1 + 4 / 256, 1 + 2 / 256, -1]
    (kept,) = vectors.kept()
    assert kept.dtype == torch.bfloat16
    assert np.load(vectors.store.shards()[0].vectors)[0, :3].tolist() == [0x3F80, 0x3F80, 0x3F82]


def test_float16_rounds_to_the_nearest_and_ties_to_even() -> None:
    """Above 1 a step of float16 is 1/1024."""
    vectors = embed(Given([[1 + 1 / 2048, 1 + 3 / 2048, -65_504, 65_504]]), ["a"], "document", storage="float16")
    assert values(vectors) == [[1, 1 + 4 / 2048, -65_504, 65_504]]
    assert [part.dtype for part in vectors.kept()] == [torch.float16]


@pytest.mark.parametrize(
    ("storage", "value"), [("float16", 65_505), ("float16", -70_000), ("bfloat16", 3.4e38), ("bfloat16", -3.4e38)]
)
def test_what_the_storage_cannot_hold_is_refused(storage: shards.Storage, value: float, obliq_home: Path) -> None:
    with pytest.raises(UserError, match=rf"which {storage} cannot hold; store these vectors as"):
        embed(Given([[0.5, value]]), ["a"], "document", storage=storage)
    assert files(obliq_home) == {}
    assert values(embed(Given([[0.5, value]]), ["a"], "document")) == [[0.5, float(np.float32(value))]]


def test_one_bad_shard_leaves_those_before_it() -> None:
    class Failing(Hashing):
        def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
            if "text 5" in texts:
                raise UserError("the server is down")
            return super().run(texts, role, instruction)

    with pytest.raises(UserError, match="the server is down"):
        embed(Failing(), TEXTS, "document", shard=2)
    encoder = Hashing()
    embed(encoder, TEXTS, "document", shard=2)
    assert encoder.calls == [TEXTS[4:6], TEXTS[6:8], TEXTS[8:]]


def test_a_full_disk_is_one_sentence_and_keeps_what_is_done(obliq_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says when it is full; the second shard is the third file that is flushed to the disk."""
    flushed: list[int] = []

    def full(_: int) -> None:
        flushed.append(1)
        if len(flushed) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*shard-00001\.npy: No space .*free space, or set OBLIQ_HOME"):
        embed(Hashing(), TEXTS, "document", shard=4)
    assert list(files(obliq_home)) == ["shard-00000.npy"]
    assert not list(obliq_home.glob("embeddings/*/.part-*"))
    encoder = Hashing()
    embed(encoder, TEXTS, "document", shard=4)
    assert encoder.calls == [TEXTS[4:8], TEXTS[8:]]


def test_the_systems_own_limit_is_one_sentence(tmp_path: Path) -> None:
    """A file may have 4,096 bytes here: a shard of 300 x 4 values of 4 bytes is larger."""
    script = textwrap.dedent(f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_embeddings import Hashing
        from obliq_eval.errors import UserError
        from obliq_models.embeddings import embed
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            embed(Hashing(), [str(n) for n in range(300)], "document")
        except UserError as error:
            print(error)
    """)
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.startswith("cannot write ")
    assert told.endswith("shard-00000.npy: File too large\n")


@pytest.mark.parametrize("place", ["/proc/no-such-folder", "/dev/null/embeddings"])
def test_a_home_that_cannot_be_written_is_one_sentence(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", place)
    with pytest.raises(UserError, match=rf"cannot write {place}.*; set OBLIQ_HOME to a folder that can be written"):
        embed(Hashing(), TEXTS, "document")


def test_what_is_kept_is_read_without_writing(obliq_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = embed(Hashing(), [*TEXTS, "text 0"], "document")

    def refuse(*_: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(stores, "alone", refuse)
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert values(embed(Hashing(), [*TEXTS, "text 0"], "document")) == values(first)


class Slow(Hashing):
    """Waits for leave at its first text."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.leave = threading.Event(), threading.Event()

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
        self.begun.set()
        assert self.leave.wait(60)
        return super().run(texts, role, instruction)


def test_two_at_once_do_the_work_once() -> None:
    """The second is another process, as a lock in this one would tell nothing."""
    slow = Slow()
    worker = threading.Thread(target=embed, args=(slow, TEXTS, "document"))
    worker.start()
    assert slow.begun.wait(60)
    script = textwrap.dedent(f"""
        import logging, sys
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_embeddings import TEXTS, Hashing
        from obliq_models.embeddings import embed
        encoder = Hashing()
        vectors = embed(encoder, TEXTS, "document")
        print(len(encoder.calls), len(vectors.matrix()), flush=True)
    """)
    second = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    assert "another process writes" in second.stdout.readline()
    slow.leave.set()
    assert second.communicate(timeout=60)[0].splitlines()[-1] == "0 10"
    worker.join()


def test_texts_that_change_meanwhile_are_refused() -> None:
    class Changing:
        passes = 0

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[str]:
            self.passes += 1
            return iter(["a", f"b{self.passes}"])

    texts: Any = Changing()
    with pytest.raises(UserError, match="the texts have changed"):
        embed(Hashing(), texts, "document", shard=1)


@pytest.mark.parametrize("texts", [iter(["a"]), (text for text in "ab")])
def test_texts_that_can_be_read_once_only_are_refused(texts: Any) -> None:
    with pytest.raises(UserError, match="the texts have changed"):
        embed(Hashing(), texts, "document")


class Scripted:
    """An engine that yields what it is told."""

    def __init__(self, *made: tuple[int, Encoded]) -> None:
        self.made = made

    def encode(self, shards: Iterator[tuple[int, list[str]]], _: object) -> Any:
        assert [number for number, _ in shards] == [0, 1]
        yield from self.made


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([(0, (1, DIMS))], "did not return 1 of 2 shards"),
        ([(0, (1, DIMS)), (0, (1, DIMS))], r"shape \(1, 4\) as shard 0"),
        ([(0, (1, DIMS + 1))], r"shape \(1, 5\) as shard 0"),
        ([(7, (1, DIMS))], r"shape \(1, 4\) as shard 7"),
    ],
)
def test_an_engine_that_errs_is_found_out(made: list[tuple[int, tuple[int, int]]], told: str) -> None:
    engine = Scripted(*[(number, Encoded(np.zeros(shape, np.float32))) for number, shape in made])
    with pytest.raises(UserError, match=told):
        embed(Hashing(), ["a", "b"], "document", shard=1, engine=engine)


def test_shards_may_come_in_any_order() -> None:
    made = [(number, Hashing().encode([text], "document")) for number, text in enumerate("ab")]
    vectors = embed(Hashing(), ["a", "b"], "document", shard=1, engine=Scripted(*reversed(made)))
    assert values(vectors) == expected(["a", "b"])


def missed(encoder: Encoder, texts: list[str], **changed: Any) -> str:
    """Return what is logged when these are asked for."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("obliq_models.embeddings")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        embed(encoder, texts, "document", **changed)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    return " | ".join(record.getMessage() for record in records)


def test_why_it_missed_is_told() -> None:
    head = "org/hashing: no vectors for this yet: "
    assert missed(Hashing(), TEXTS) == head + "none are kept at all"
    assert missed(Hashing(), TEXTS) == ""
    assert missed(Hashing(length=1024), TEXTS) == head + "the nearest differ in length (512, not 1024)"
    # Nearer to the one of length 1,024 (one field) than to the one of 512 (two).
    assert missed(Hashing(length=1024, prefix=""), TEXTS) == head + 'the nearest differ in prefix ("passage: ", not "")'
    assert missed(Hashing(adapter={"name": "org/adapter", "revision": "abd"}), TEXTS) == (
        head + 'the nearest differ in adapter.revision ("abc", not "abd")'
    )
    assert missed(Hashing(pooling="mean"), TEXTS) == head + 'the nearest differ in pooling (nothing, not "mean")'
    assert missed(Hashing(pooling="mean"), TEXTS, storage="float16") == (
        head + "the nearest differ in storage (float32, not float16)"
    )
    told = missed(Hashing(), ["a", "a"])
    assert told.startswith(head + "the nearest differ in texts (10 of hash ")
    assert ", not 2 of hash " in told


def test_a_resumed_run_says_how_much_is_there() -> None:
    store = embed(Hashing(), TEXTS, "document", shard=2).store
    store.shards()[3].facts.unlink()
    assert missed(Hashing(), TEXTS, shard=2).startswith(
        "org/hashing: 4 of 5 shards of these vectors are there, the others are encoded now"
    )


def test_stores_are_listed_and_removed(obliq_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert stores.stored() == []
    kept = [embed(Hashing(name=f"org/model {n}"), TEXTS, "document").store for n in range(2)]
    assert {store.name for store in stores.stored()} == {store.name for store in kept}
    assert kept[0].folder.name.startswith("org-model-0-")
    assert all(store.bytes >= 10 * DIMS * 4 and store.counts for store in stores.stored())
    size = sum(path.stat().st_size for path in kept[0].folder.iterdir())
    assert stores.remove(kept[0]) == size
    assert [store.name for store in stores.stored()] == [kept[1].name]
    (kept[1].folder / stores.MANIFEST).write_text("{}")
    assert stores.stored() == []
    assert "is damaged; remove the folder" in caplog.text
    encoder = Hashing(name="org/model 0")
    embed(encoder, TEXTS, "document")
    assert encoder.asked == TEXTS


def test_vectors_that_have_gone_are_one_sentence() -> None:
    vectors = embed(Hashing(), TEXTS, "document")
    stores.remove(vectors.store)
    with pytest.raises(UserError, match="are gone or damaged; encode them again"):
        vectors.matrix()


@pytest.mark.parametrize("wrong", [{"storage": "int8"}, {"shard": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="storage is one of float32, float16, bfloat16"):
        embed(Hashing(), TEXTS, "document", **wrong)


def test_progress_is_silent_when_piped(capfd: pytest.CaptureFixture[str]) -> None:
    embed(Hashing(), TEXTS, "document", shard=2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [True, False])
def test_progress_on_a_terminal_shows_rates_and_what_is_left(progress: bool) -> None:
    """A pseudo-terminal is a terminal."""
    import pty
    import termios

    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_embeddings import TEXTS, Hashing
        from obliq_models.embeddings import embed
        embed(Hashing(), TEXTS, "document", shard=2, progress={progress})
    """)
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))
    subprocess.run([sys.executable, "-c", script], stderr=slave, check=True)
    os.write(slave, b"end")
    told = os.read(master, 100_000).decode()
    if progress:
        assert "Encoding document texts: 100%" in told
        assert "10/10" in told
        assert " texts/s" in told
        assert " tokens/s" in told
    else:
        assert told == "end"
