"""Engines: the same shards and the same bytes as one process, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from obliq_eval.catalogue import Loader, Origin
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.embeddings import embed
from obliq_models.engines import Job, Local, PoolEngine, RayEngine
from obliq_models.engines.base import Replica, origin_of, threads_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from obliq_models.embeddings import Embeddings
    from obliq_models.encoders.base import Encoder, Role

TEXTS = [f"text {number}" for number in range(10)]
JOB = Job({"role": "document", "instruction": ""})
FAKE = '''
"""A complete encoder whose vectors are products of large matrices, in which another number of threads may show."""

import os, signal, sys, time
from pathlib import Path

import numpy as np
import torch

from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.encoders.base import Encoded, Encoder


class Fake(Encoder):
    def __init__(self, name, revision, log, device, die, fault):
        super().__init__(name, revision, 8)
        self.log, self.device, self.die, self.fault = Path(log), device, die, fault

    def settings(self, role):
        return {"prefix": role}

    def run(self, texts, role, instruction):
        with self.log.open("a") as log:  # one short write, so that lines of several processes do not mix
            log.write(f"{os.getpid()} {self.device} {torch.get_num_threads()} {texts[0]}\\n")
        if self.fault and self.fault in texts:
            raise {"text 2": UserError("the server is down"), "text 4": MissingExtraError("p", "e", "it"),
                   "text 6": ZeroDivisionError("by none")}[self.fault]
        again = self.log.with_name("died")
        if self.die and self.die in texts and (self.die == "text 4" or not again.exists()):
            again.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        hashes = [hash_of(role + instruction + text) for text in texts]
        seeds = [[(number >> shift) % 251 for shift in range(0, 2048 * 7, 7)] for number in hashes]
        large = torch.randn(2048, 8, generator=torch.Generator().manual_seed(0))
        return Encoded((torch.tensor(seeds, dtype=torch.float32).sin() @ large).numpy(), len(texts), 1, 2)


def hash_of(text):
    import hashlib

    return int.from_bytes(hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(2000), "big")


class Model:
    origin = None

    def __init__(self, encoder):
        self.encoder, self.name = encoder, encoder.name


def load(name, revision=None, *, log, device="cpu", die="", fault=""):
    if fault == "at once":
        raise UserError(f"{name} is no model")
    return Model(Fake(name, revision, log, device, die, fault))
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that builds a fake model from a module that other processes can import as well."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "fake_model.py").write_text(FAKE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    sys.modules.pop("fake_model", None)
    return lambda **settings: Loader("fake_model:load")(
        "org/fake", revision="1", log=str(tmp_path / "calls"), **settings
    )


def job_of(model: Any, role: Role = "document") -> Job:
    return Job(model.encoder.key(role))


def calls(tmp_path: Path) -> list[list[str]]:
    """Return process, device, threads and first text of each shard that an encoder was given."""
    path = tmp_path / "calls"
    return [line.split(" ", 3) for line in path.read_text().splitlines()] if path.exists() else []


def content(vectors: Embeddings) -> list[bytes]:
    return [shard.vectors.read_bytes() for shard in vectors.store.shards()]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Callable[..., Any]) -> Embeddings:
    """Return what one process makes, kept elsewhere."""
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "alone"))
    found = embed(model().encoder, TEXTS, "document", shard=2)
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "several"))
    (tmp_path / "calls").unlink()
    return found


def test_a_pool_makes_the_same_bytes(model: Callable[..., Any], alone: Embeddings, tmp_path: Path) -> None:
    made = model()
    vectors = embed(made.encoder, TEXTS, "document", shard=2, engine=PoolEngine(made.origin, ["cpu", "cpu:0"]))
    assert content(vectors) == content(alone)
    assert vectors.counts == alone.counts
    told = calls(tmp_path)
    assert sorted(text for *_, text in told) == TEXTS[::2]
    assert {device for _, device, *_ in told} == {"cpu", "cpu:0"}
    assert len({process for process, *_ in told}) == 2
    assert str(os.getpid()) not in {process for process, *_ in told}
    assert {threads for _, _, threads, _ in told} == {str(torch.get_num_threads())}


def test_a_killed_process_costs_its_shard(
    model: Callable[..., Any], alone: Embeddings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = model(die="text 2")
    vectors = embed(made.encoder, TEXTS, "document", shard=2, engine=PoolEngine(made.origin, ["cpu", "cpu"]))
    assert content(vectors) == content(alone)
    assert sorted(text for *_, text in calls(tmp_path)) == sorted([*TEXTS[::2], "text 2"])
    assert f"a process on cpu ended (exit status {-signal.SIGKILL}); shard 1 is encoded again" in caplog.text


def test_a_shard_that_ends_every_process_is_named(model: Callable[..., Any], alone: Embeddings, tmp_path: Path) -> None:
    made = model(die="text 4")
    with pytest.raises(UserError, match=r"shard 2 has ended 3 processes on cpu .* the shards that are done are kept"):
        embed(made.encoder, TEXTS, "document", shard=2, engine=PoolEngine(made.origin, ["cpu"]))
    sound = model()
    (tmp_path / "calls").unlink()
    vectors = embed(sound.encoder, TEXTS, "document", shard=2)
    assert "text 0" not in [text for *_, text in calls(tmp_path)]
    assert content(vectors) == content(alone)


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        ("text 4", UserError, r"it needs the package p: pip install 'obliq\[e\]'"),
        ("text 6", RuntimeError, "ZeroDivisionError: by none"),
    ],
)
def test_what_goes_wrong_in_a_process_is_told_here(
    model: Callable[..., Any], fault: str, kind: type[Exception], told: str
) -> None:
    made = model(fault=fault)
    with pytest.raises(kind, match=told):
        embed(made.encoder, TEXTS, "document", shard=2, engine=PoolEngine(made.origin, ["cpu"]))


def test_a_model_that_cannot_be_built_there_is_told_here(model: Callable[..., Any]) -> None:
    origin = Origin("fake_model:load", "org/fake", {"log": "", "fault": "at once"})
    with pytest.raises(UserError, match="org/fake is no model"):
        list(PoolEngine(origin, ["cpu"]).encode(iter([(0, ["a"])]), JOB))


def test_a_pool_takes_shards_when_somebody_is_free(model: Callable[..., Any]) -> None:
    """Two processes: when the first shard comes back, no more than three can have been taken."""
    taken: list[int] = []

    def shards() -> Iterator[tuple[int, list[str]]]:
        for number in range(5):
            taken.append(number)
            yield number, ["a"]

    made = PoolEngine(model().origin, ["cpu", "cpu"]).encode(shards(), job_of(model()))
    next(made)
    assert len(taken) <= 3
    made.close()  # type: ignore[attr-defined]


def test_no_shard_starts_no_process(model: Callable[..., Any], tmp_path: Path) -> None:
    origin = model().origin
    assert list(PoolEngine(origin).encode(iter(()), JOB)) == []
    assert embed(model().encoder, [], "document", engine=RayEngine(origin)).matrix().shape == (0, 8)


def test_a_replica_is_built_once_with_its_device_and_threads(model: Callable[..., Any], tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        replica = Replica(model().origin, "cpu:0", before + 1)
        job = job_of(model(), "query")
        first = replica.encode(["a"], job)
        assert np.array_equal(first.vectors, replica.encode(["a"], job).vectors)
    finally:
        torch.set_num_threads(before)
    assert [told[1:] for told in calls(tmp_path)] == [["cpu:0", str(before + 1), "a"]] * 2
    assert threads_here() == before


def test_a_model_built_by_hand_cannot_be_built_elsewhere(model: Callable[..., Any]) -> None:
    made = model()
    assert origin_of(made).name == "org/fake"
    made.origin = None
    with pytest.raises(UserError, match="org/fake was built by hand"):
        origin_of(made)


def test_local_keeps_the_order(model: Callable[..., Any]) -> None:
    encoder: Encoder = model().encoder
    made = list(Local(encoder).encode(iter([(3, ["a"]), (1, ["b", "c"])]), Job(encoder.key("query"))))
    assert [(number, len(encoded.vectors)) for number, encoded in made] == [(3, 1), (1, 2)]


def test_without_ray_the_extra_is_named(model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'obliq\[ray\]'"):
        list(RayEngine(model().origin).encode(iter([(0, ["a"])]), JOB))


@pytest.mark.slow
def test_ray_makes_the_same_bytes_though_a_worker_is_killed(
    model: Callable[..., Any], alone: Embeddings, tmp_path: Path
) -> None:
    """Two actors, one of which is killed at its shard: nothing but that shard is encoded twice."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    made = model(die="text 2")
    vectors = embed(made.encoder, TEXTS, "document", shard=2, engine=RayEngine(made.origin, workers=2))
    assert content(vectors) == content(alone)
    assert vectors.counts == alone.counts
    told = calls(tmp_path)
    assert sorted(text for *_, text in told) == sorted([*TEXTS[::2], "text 2"])
    assert str(os.getpid()) not in {process for process, *_ in told}
    assert {threads for _, _, threads, _ in told} == {str(torch.get_num_threads())}


@pytest.mark.parametrize("kind", ["local", "pool"])
def test_an_engine_that_holds_another_encoder_is_refused(
    model: Callable[..., Any], kind: str, obliq_home: Path
) -> None:
    """Vectors of revision 2 are asked for, and the engine holds revision 1, of as many dimensions."""
    made, wanted = model(), model().encoder
    wanted.revision = "2"
    engine = Local(made.encoder) if kind == "local" else PoolEngine(made.origin, ["cpu"])
    with pytest.raises(UserError, match=r"holds another encoder .*: revision is '1', not '2'"):
        embed(wanted, TEXTS, "document", engine=engine)
    assert not list(obliq_home.rglob("shard-*"))


def test_other_processes_keep_to_the_batch_size(model: Callable[..., Any]) -> None:
    class Sized:
        batch_size: int | None = None

        def key(self, role: str, instruction: str) -> dict[str, str]:
            return {"role": role, "instruction": instruction}

        def encode(self, *_: object) -> int | None:
            return self.batch_size

    sized: Any = Sized()
    assert Job({"role": "query", "instruction": ""}, 3).encode(sized, ["a"]) == 3  # type: ignore[comparison-overlap]


def test_within_a_shard_an_encoder_may_tell_how_far_it_is(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    """An encoder of this process moves the bar; one of another process cannot."""
    from obliq_models import embeddings

    moved: list[int] = []

    class Bar:
        disable, n = False, 0

        def update(self, count: int) -> None:
            moved.append(count)
            self.n += count

    encoder = model().encoder
    bar = Bar()
    with embeddings._watched(Local(encoder), bar):
        encoder.watch(3)
    assert encoder.watch is None
    with embeddings._watched(PoolEngine(model().origin, ["cpu"]), bar):
        assert encoder.watch is None
    assert moved == [3]


UNGUARDED = """
from obliq_eval.catalogue import Loader
from obliq_models.embeddings import embed
from obliq_models.engines import PoolEngine

made = Loader("fake_model:load")("org/fake", revision="1", log="log")
found = embed(made.encoder, ["a", "b"], "document", shard=1, engine=PoolEngine(made.origin, ["cpu"]))
print("encoded", found.encoded)
"""


def test_a_script_without_a_guard_is_not_run_again(model: Callable[..., Any], tmp_path: Path) -> None:
    """Run again in each process it would wait there for the lock that it holds here."""
    import subprocess

    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.stdout, done.returncode) == ("encoded 2\n", 0), done.stderr
