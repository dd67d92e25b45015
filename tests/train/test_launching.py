"""Training by two processes, as `torchrun` and `accelerate` start the command, and what a launcher says of FSDP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_train import curves, launching, outputs, serving
from obliq_train import recipe as recipes
from obliq_train.checkpoints import Folder, step_of
from obliq_train.trainer import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OBLIQ = Path(sys.executable).with_name("obliq")
FSDP = Path(__file__).parent / "data" / "fsdp_settings.py"


def obliq(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["train", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--no-python")
OF_TWO = ("batch.per_device=2", "batch.devices=2")
"""Two processes of two rows each, which are one of four."""


def begun(command: Sequence[object], recipe: Path, output: Path, *changes: str) -> subprocess.Popen[str]:
    own = [OBLIQ, "train", recipe, "-o", output, *(part for one in (*OF_TWO, *changes) for part in ("--set", one))]
    return subprocess.Popen(
        [*map(str, command), *map(str, own)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def launched(command: Sequence[object], recipe: Path, output: Path, *changes: str) -> str:
    """Train with two processes, and return what they print."""
    with begun(command, recipe, output, *changes) as running:
        stdout, stderr = running.communicate()
    assert running.returncode == 0, stderr[-5000:]
    return stdout


def furthest(one: Path, other: Path) -> float:
    """Return the largest difference between the weights of two adapters."""
    a, b = (load_file(folder / "adapter_model.safetensors") for folder in (one, other))
    assert a.keys() == b.keys()
    return max(float((a[key] - b[key]).abs().max()) for key in a)


@pytest.mark.slow
def test_two_processes_make_the_adapter_of_one_with_the_doubled_batch(tiny_training: Path) -> None:
    """Documents are gathered and dropout is off, so that all that differs is the order of float's sums.

    Without gathering the adapter is another one: each anchor is contrasted with six documents, not twelve.
    """
    folder = tiny_training.parent
    told = launched(TORCHRUN, tiny_training, folder / "two")
    assert told.count("\n") == 1  # one process alone says what came out
    assert "two: 6 steps" in told
    obliq(tiny_training, "-o", folder / "one")
    assert furthest(folder / "one", folder / "two") < 1e-5
    obliq(tiny_training, "-o", folder / "apart", "--set", "batch.per_device=2", "--set", "batch.accumulation=2")
    assert furthest(folder / "one", folder / "apart") > 1e-4


@pytest.mark.slow
def test_two_processes_that_are_stopped_go_on_to_the_same_adapter_and_measure_as_one_does(
    tiny_training: Path, write_task: Callable[..., Path]
) -> None:
    """Whatever SIGTERM or SIGKILL meets. One process makes the sums in another order, and the dev scores are ranks'."""
    folder = tiny_training.parent
    words = ["whales sing of cold", "kings speak to people", "taxes and harvest", "winter and war", "northern seas"]
    corpus, queries = ({f"{kind}{n}": word for n, word in enumerate(words)} for kind in "dq")
    task = write_task(corpus, queries, {f"q{n}": {f"d{n}": 1} for n in range(5)})
    changes = (
        f'evaluation.tasks=["{task}"]', "evaluation.every=10", "run.save_steps=10", "lora.dropout=0.2",
        "schedule.steps=150", "batch.accumulation=2",
    )  # fmt: skip
    stopped, beside = folder / "stopped", Folder.beside(folder / "stopped")
    for number in (signal.SIGTERM, signal.SIGKILL):
        before = beside.newest()
        with begun(TORCHRUN, tiny_training, stopped, *changes) as running:
            while beside.newest() == before:
                assert running.poll() is None, running.communicate()[1][-5000:]
                time.sleep(0.1)
            if number is signal.SIGTERM:  # the launcher passes it on
                running.send_signal(number)
            else:
                for worker in psutil.Process(running.pid).children(recursive=True):
                    worker.kill()
            running.communicate()
        assert running.returncode != 0
        assert not stopped.exists()
    assert 10 < step_of(beside.newest() or stopped) < 150
    launched(TORCHRUN, tiny_training, stopped, *changes)
    launched(TORCHRUN, tiny_training, folder / "whole", *changes)
    assert furthest(stopped, folder / "whole") == 0
    found, straight = (curves.read(folder / name / outputs.CURVES) for name in ("stopped", "whole"))
    assert [(p.step, p.loss, p.rate, p.dev) for p in found] == [(p.step, p.loss, p.rate, p.dev) for p in straight]
    assert [p.step for p in found if p.dev] == list(range(0, 151, 10))


@pytest.mark.slow
def test_accelerate_launches_it_as_well(tiny_training: Path) -> None:
    folder = tiny_training.parent
    accelerate = (
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1,
        "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", 0, "--no_python",
    )  # fmt: skip
    assert launched(accelerate, tiny_training, folder / "two").count("\n") == 1
    obliq(tiny_training, "-o", folder / "one")
    assert furthest(folder / "one", folder / "two") < 1e-5


def test_fewer_processes_than_the_recipe_was_written_for_are_told_of(tiny_training: Path) -> None:
    """4 rows on each of 8 devices are 32 anchors; one device has 4 of them."""
    done = CliRunner().invoke(
        app, ["train", str(tiny_training), "-o", str(tiny_training.parent / "out"), "--set", "batch.devices=8"]
    )
    assert done.exit_code == 0, done.output
    assert "written for 8 devices, and 1 of them train: a step has 4 anchors, not 32" in done.stderr


def launch(monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    """Set what a launcher of two processes sets."""
    for key, value in {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(key, value)


@pytest.mark.parametrize("asked", ["nothing.toml", "the recipe"])
def test_what_is_wrong_in_all_processes_is_told_by_the_first(
    tiny_training: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A process that waits is ended by its launcher, with SIGTERM, which is a `SystemExit` here."""
    waited = list[float]()

    def ended(seconds: float) -> None:
        waited.append(seconds)
        raise SystemExit(143)

    monkeypatch.setattr("obliq_train.launching.time.sleep", ended)
    told = {}
    for rank in ("0", "1"):
        launch(monkeypatch, rank)
        given = str(tiny_training) if asked == "the recipe" else asked
        told[rank] = CliRunner().invoke(app, ["train", given, "--set", "nothing=1"])
    assert (told["0"].exit_code, told["0"].stderr.count("error: ")) == (2, 1)
    assert (told["1"].exit_code, told["1"].output) == (143, "")
    assert waited == [launching.PATIENCE]


def test_what_is_wrong_in_another_process_alone_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "PATIENCE", 0)
    launch(monkeypatch, "1")
    done = CliRunner().invoke(app, ["train", "nothing.toml"])
    assert (done.exit_code, done.stderr.count("error: ")) == (2, 1)


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"RANK": "1"}, ""),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 in the environment, and no launcher has started this: unset it"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two' in the environment, and no number of processes"),
        ({"LOCAL_RANK": "3"}, "LOCAL_RANK is 3 in the environment, and no launcher has started this: unset it"),
        ({"LOCAL_RANK": "-1"}, ""),
        (
            {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "x"},
            "MASTER_PORT is 'x' in the environment, and no number",
        ),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "ACCELERATE_USE_DEEPSPEED is 'true' in the environment, which `obliq t"),
        ({"ACCELERATE_DYNAMO_BACKEND": "inductor"}, "ACCELERATE_DYNAMO_BACKEND is 'inductor' in the environment"),
        ({"ACCELERATE_DYNAMO_BACKEND": "NO"}, ""),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, "the launcher asks for mixed precision bf16, and the recipe for run"),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, ""),
    ],
)
def test_what_is_left_in_the_environment_says_nothing_or_is_refused(
    tiny_training: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, str], refused: str
) -> None:
    """A rank of one process means nothing; accelerate would otherwise compute in another precision without a word."""
    for key, value in told.items():
        monkeypatch.setenv(key, value)
    more = ["--set", "schedule.epochs=0.5"]
    done = CliRunner().invoke(app, ["train", str(tiny_training), "-o", str(tiny_training.parent / "out"), *more])
    assert (refused in done.stderr) if refused else ("evaluate it with" in done.stdout), done.output
    assert done.exit_code == (2 if refused else 0)


@pytest.mark.parametrize("more", [(), ("--ablate", "--data", "mini")], ids=["a recipe", "a family"])
def test_an_end_that_somebody_asks_for_has_the_status_of_its_signal(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once in every process, and said by the first."""

    def stopped(*_: object, **__: object) -> None:
        raise Stopped("stopped after step 1 of 2 by SIGINT", signal.SIGINT)

    monkeypatch.setattr(launching, "run", stopped)
    for rank, told in (("0", 1), ("1", 0)):
        launch(monkeypatch, rank)
        done = CliRunner().invoke(app, ["train", "dose" if more else "obliq-ir-mini", *more, "-o", str(tmp_path)])
        assert (done.exit_code, done.stderr.count("stopped after step 1")) == (130, told)


def test_fsdp_without_a_gpu_is_refused(tiny_training: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = CliRunner().invoke(app, ["train", str(tiny_training), "-o", str(tiny_training.parent / "out")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "leave --use_fsdp out" in done.stderr


@pytest.mark.slow
def test_what_accelerate_says_of_fsdp_reaches_the_trainer(tiny_training: Path) -> None:
    """Weights are spread over GPUs alone, so what accelerate is given is looked at here, not what it does with it."""
    told = {
        "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_TRANSFORMER_CLS_TO_WRAP": "RobertaLayer",
        "FSDP_OFFLOAD_PARAMS": "true",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(FSDP), str(tiny_training)],
        env=os.environ | told, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines() == ["version 2", "reshard False", "offload True", "wraps RobertaLayer"]


def test_a_model_of_the_table_serves_where_it_reads_texts_as_the_recipe_does(tiny_training: Path) -> None:
    """obliq-ir has these prefixes and lengths and is loaded in bfloat16; with any other a model file is written."""
    reading = ["encode_query_length=256", "encode_document_length=1024"]
    found = recipes.read(str(tiny_training), [*(f"model.{one}" for one in reading), "run.precision=bf16"])
    output = tiny_training.parent / "out"
    assert launching.evaluation(found, output) == f"obliq run -t OBLIQ-Mini-Math -m obliq-ir@{output}"
    assert not Path(f"{output}.toml").exists()
    other = recipes.read(str(tiny_training), ["model.query_prefix="])
    assert launching.evaluation(other, output) == f"obliq run -t OBLIQ-Mini-Math -m {output}.toml"
    file = Path(f"{output}.toml").read_text("utf-8")
    assert 'query_prefix = ""' in file
    assert (f"{output}.toml", file) == serving.named(other, output)
    assert "/" not in file.replace(str(output), ""), "the file and the folder may be moved together"
