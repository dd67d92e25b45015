"""Training on a tiny base: resumed to the bit, stopped in order, refused with one sentence, the base left alone."""

from __future__ import annotations

import json
import math
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from obliq_eval.errors import UserError
from obliq_train import build as building
from obliq_train import checkpoints, curves, outputs, stepping, trainer
from obliq_train.data import Data
from obliq_train.recipe import Recipe, read
from obliq_train.watch import Asked, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Toy = Callable[..., tuple[Recipe, Data]]

LONG = ("lora.dropout=0.2", "schedule.epochs=2", "run.save_steps=4")
"""24 rows, 4 at a time: 6 steps an epoch, 12 in all, checkpoints after 4, 8 and 12; dropout draws random numbers."""
KILLED = """
import os, signal, sys
from pathlib import Path
from obliq_train import stepping, trainer
from obliq_train.data import Data
from obliq_train.recipe import read

real, calls = stepping.Trainer.training_step, []

def step(self, *given, **settings):
    calls.append(1)
    if len(calls) == 11:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *given, **settings)

stepping.Trainer.training_step = step
recipe, rows, output, *changes = sys.argv[1:]
trainer.train(read(recipe, changes), Data(Path(rows), {}, {}), Path(output))
"""


@pytest.fixture
def toy(tiny_training: Path) -> Toy:
    def make(*changes: str) -> tuple[Recipe, Data]:
        return read(str(tiny_training), changes), Data(tiny_training.with_name("rows.jsonl"), {}, {})

    return make


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Return a function that has something done before the n-th step of this session."""

    def arrange(number: int, act: Callable[[], object]) -> None:
        real, calls = stepping.Trainer.training_step, []

        def step(self: Any, *given: Any, **settings: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                act()
            return real(self, *given, **settings)

        monkeypatch.setattr(stepping.Trainer, "training_step", step)

    return arrange


def adapter(folder: Path) -> bytes:
    return (folder / building.WEIGHTS).read_bytes()


def steps_of(output: Path) -> list[int]:
    return [point.step for point in curves.read(output / outputs.CURVES)]


def names(output: Path) -> list[str]:
    return sorted(path.name for path in checkpoints.Folder.beside(output).checkpoints.iterdir())


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_killed_run_ends_with_the_weights_of_one_that_never_stopped(toy: Toy, tiny_training: Path) -> None:
    """Killed in step 11, in the second epoch; checkpoint 8 lies inside it."""
    recipe, data = toy(*LONG)
    whole, output = tiny_training.with_name("whole"), tiny_training.with_name("killed")
    given = [str(tiny_training), str(data.rows), str(output), *LONG]
    done = subprocess.run([sys.executable, "-c", KILLED, *given], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not output.exists()
    assert names(output) == ["checkpoint-4", "checkpoint-8"]
    resumed, straight = trainer.train(recipe, data, output), trainer.train(recipe, data, whole)
    assert adapter(output) == adapter(whole)
    assert steps_of(output) == list(range(1, 13)) == steps_of(whole)
    assert (resumed.steps, resumed.loss) == (12, straight.loss)
    for one, other in zip(curves.read(resumed.curves), curves.read(straight.curves), strict=True):
        assert (one.loss, one.rate, one.grad_norm, one.epoch) == (other.loss, other.rate, other.grad_norm, other.epoch)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_after_its_step_and_the_same_command_goes_on(
    toy: Toy, tiny_training: Path, at_step: Callable[..., None], number: signal.Signals
) -> None:
    recipe, data = toy("lora.dropout=0.2", "batch.accumulation=2", "schedule.steps=5")
    whole, output = tiny_training.with_name("whole"), tiny_training.with_name("stopped")
    trainer.train(recipe, data, whole)
    before = signal.getsignal(number)
    at_step(3, lambda: signal.raise_signal(number))  # batch 3 of 10: inside the second step
    with pytest.raises(trainer.Stopped, match=f"stopped after step 2 of 5 by {number.name}; .*checkpoint-2") as stopped:
        trainer.train(recipe, data, output)
    assert stopped.value.status == 128 + number
    assert signal.getsignal(number) is before
    assert not output.exists()
    trainer.train(recipe, data, output)
    assert adapter(output) == adapter(whole)
    assert steps_of(output) == [1, 2, 3, 4, 5]


def test_checkpoints_hold_the_adapter_alone_and_a_damaged_one_is_passed_over(
    toy: Toy, tiny_training: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, data = toy(*LONG)
    output = tiny_training.with_name("out")
    trainer.train(recipe, data, output)
    folder = checkpoints.Folder.beside(output)
    assert names(output) == ["checkpoint-12", "checkpoint-8"]  # two are kept
    for checkpoint in folder.checkpoints.iterdir():
        (weights,) = checkpoint.rglob("*.safetensors")
        assert all(".lora_" in key for key in load_file(weights))
        assert not {"config.json", "model.safetensors", "training_args.bin"} & {
            file.name for file in checkpoint.iterdir()
        }
    expected = adapter(output)
    shutil.rmtree(output)
    cut = folder.checkpoints / "checkpoint-12" / "optimizer.pt"
    cut.write_bytes(cut.read_bytes()[:-1] + b"\1")  # as long as before
    (folder.part / "checkpoint-16").mkdir(parents=True)
    assert folder.resumed() == (folder.checkpoints / "checkpoint-8", ["checkpoint-12"])
    (folder.path / "curves.jsonl").unlink()
    trainer.train(recipe, data, output)
    assert "checkpoint-12 passed over: not what was written" in capsys.readouterr().err
    assert adapter(output) == expected
    assert names(output) == ["checkpoint-12", "checkpoint-8"]
    assert folder.newest() == folder.checkpoints / "checkpoint-12"


def test_a_run_that_was_killed_before_its_folder_was_written_trains_no_further(
    toy: Toy, tiny_training: Path, at_step: Callable[..., None]
) -> None:
    recipe, data = toy("schedule.steps=2")
    output = tiny_training.with_name("out")
    trainer.train(recipe, data, output)
    expected = adapter(output)
    shutil.rmtree(output)
    at_step(1, lambda: pytest.fail("a step was made"))
    assert trainer.train(recipe, data, output).steps == 2
    assert adapter(output) == expected


def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_is_kept(
    toy: Toy, tiny_training: Path, at_step: Callable[..., None]
) -> None:
    """Files of 8 kB at most: tokens and optimiser state are larger."""
    recipe, data = toy("schedule.steps=6", "run.save_steps=2", "lora.dropout=0.2")
    output = tiny_training.with_name("out")
    trainer.train(recipe, data, tiny_training.with_name("whole"))
    limit = full_at(8_000)
    at_step(3, limit.__enter__)
    told = (
        "cannot save step 4 in .*checkpoints: .*too large.*; free space, .*the last good checkpoint is .*checkpoint-2,"
    )
    try:
        with pytest.raises(UserError, match=told) as refused:
            trainer.train(recipe, data, output)
    finally:
        limit.__exit__(None, None, None)
    assert "\n" not in str(refused.value)
    assert names(output) == ["checkpoint-2"]
    assert not output.exists()
    trainer.train(recipe, data, output)
    assert adapter(output) == adapter(tiny_training.with_name("whole"))


def test_a_disk_that_is_full_at_the_last_write_is_one_sentence_and_costs_no_step(
    toy: Toy, tiny_training: Path, at_step: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries that write weights and tokens raise errors of their own kinds."""
    recipe, data = toy("schedule.steps=3")
    output = tiny_training.with_name("out")
    save = building.save

    def full(model: Any, folder: Path, weights: Any = None) -> None:
        if "checkpoints" not in str(folder):
            raise Exception("I/O error: No space left on device (os error 28)")  # noqa: TRY002 -- as tokenizers does
        save(model, folder, weights)

    with monkeypatch.context() as disk:
        disk.setattr(building, "save", full)
        with pytest.raises(UserError, match=r"cannot write .*out: I/O error: No space left .*; free space, and give"):
            trainer.train(recipe, data, output)
    assert not output.exists()
    at_step(1, lambda: pytest.fail("a step was made"))
    assert trainer.train(recipe, data, output).steps == 3


@pytest.mark.parametrize(
    ("shape", "falls"),
    [
        ("linear", lambda done: 1 - done),
        ("cosine", lambda done: (1 + math.cos(math.pi * done)) / 2),
        ("constant", lambda _: 1.0),
    ],
)
def test_the_rate_rises_and_falls_as_the_recipe_says(
    toy: Toy, tiny_training: Path, shape: str, falls: Callable[[float], float]
) -> None:
    """12 steps, of which a quarter warm up: 0, 1/3 and 2/3 of the rate, then the whole in step 4."""
    recipe, data = toy("schedule.epochs=2", "schedule.warmup=0.25", f"schedule.shape={shape}")
    done = trainer.train(recipe, data, tiny_training.with_name("out"))
    rates = [point.rate for point in curves.read(done.curves)]
    expected = [1e-3 * n / 3 for n in range(3)] + [1e-3 * falls(n / 9) for n in range(9)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_decay_and_clip_are_the_recipes(toy: Toy, tmp_path: Path) -> None:
    recipe, _ = toy("schedule.weight_decay=0.25", "schedule.clip=0.5", "run.seed=7")
    args = trainer.arguments(recipe, checkpoints.Folder(tmp_path))
    assert (args.weight_decay, args.max_grad_norm, args.seed, args.data_seed) == (0.25, 0.5, 7, 7)


def test_rows_that_fill_no_batch_and_batches_that_fill_no_step(toy: Toy, tiny_training: Path) -> None:
    """27 rows are six batches of 4; two by two three steps an epoch; an epoch and a half are five."""
    recipe, data = toy("batch.accumulation=2", "schedule.epochs=1.5")
    lines = data.rows.read_text("utf-8").splitlines(keepends=True)
    data.rows.write_text("".join([*lines, *(line.replace("whales", "kings") for line in lines[:3])]), "utf-8")
    done = trainer.train(recipe, data, tiny_training.with_name("out"))
    assert done.steps == trainer.steps(recipe, 27) == 5
    assert steps_of(done.folder) == [1, 2, 3, 4, 5]
    assert (done.manifest["contrast"], done.manifest["accumulation"]) == (4, 2)


@pytest.mark.parametrize("kind", ["margin-mse", "hybrid"])
def test_margins_are_learnt_through_the_trainer(toy: Toy, tiny_training: Path, kind: str) -> None:
    """Every other row has one negative where the others have two."""
    recipe, data = toy(f"loss.kind={kind}", "schedule.epochs=8", "schedule.rate=1e-2")
    rows = [json.loads(line) for line in data.rows.read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["neg"] = row["neg"][: 1 + number % 2]
        row["scores"] = {"pos": [1.0], "neg": [0.5, 0.25][: len(row["neg"])]}
    data.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    done = trainer.train(recipe, data, tiny_training.with_name("out"))
    losses = [point.loss or 0 for point in curves.read(done.curves)]
    assert sum(losses[-6:]) < 0.9 * sum(losses[:6])
    assert done.manifest["contrast"] == (None if kind == "margin-mse" else 4)


PAPERS = (
    "model.trust_remote_code=true", "model.query_length=32", "model.document_length=48", "batch.per_device=4",
    "batch.accumulation=1", "batch.devices=1", "run.save_steps=1", "run.log_steps=1", "schedule.rate=1e-2",
)  # fmt: skip


@pytest.mark.parametrize("precision", ["bf16", pytest.param("bf16-autocast", marks=pytest.mark.slow)])
def test_the_papers_recipe_trains_on_a_twin_of_its_base(
    tiny_training: Path, write_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Code that the base brings, seven layers in each block, prefixes, bfloat16; stopped after step 2, and resumed."""
    from sentence_transformers import SentenceTransformer

    from obliq_eval.demo.twin_llama import write_base
    from obliq_models.loading import encoder_of, load
    from obliq_models.naming import find
    from obliq_train.serving import named

    base = tiny_training.with_name("llama")
    base.mkdir()
    write_base(base, 64)
    files = {file.name: file.read_bytes() for file in base.iterdir()}
    corpus = {f"d{n}": f"whales sing of winter night {n}" for n in range(10)}
    task = write_task(corpus, {f"q{n}": corpus[f"d{n}"] for n in range(10)}, {f"q{n}": {f"d{n}": 1} for n in range(10)})
    recipe = read("obliq-ir-3b", [f"model.base={base}", f"run.precision={precision}",
                                  f'evaluation.tasks=["{task}"]', *PAPERS])  # fmt: skip
    data, output = Data(tiny_training.with_name("rows.jsonl"), {}, {}), tiny_training.with_name("out")
    whole = trainer.train(recipe, data, tiny_training.with_name("whole"))
    real, calls = stepping.Trainer.training_step, list[int]()

    def step(self: Any, *given: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return real(self, *given, **settings)

    with monkeypatch.context() as stopped:
        stopped.setattr(stepping.Trainer, "training_step", step)
        with pytest.raises(trainer.Stopped, match="stopped after step 2 of 6"):
            trainer.train(recipe, data, output)
    done = trainer.train(recipe, data, output)
    assert adapter(output) == adapter(whole.folder)
    weights = load_file(output / building.WEIGHTS)
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert len(weights) == 2 * 2 * 7
    assert all(bool(weight.any()) for name, weight in weights.items() if "lora_B" in name)
    assert {file.name: file.read_bytes() for file in base.iterdir()} == files
    assert list(done.manifest["dev"]) == ["0", "6"]
    text, content = named(recipe, output)
    Path(text).write_text(content, "utf-8")
    encoder = encoder_of(load(find(text), "cpu"))
    assert encoder is not None
    plain = SentenceTransformer(str(output), device="cpu", trust_remote_code=True)
    if precision == "bf16":
        plain.to(torch.bfloat16)
    for role, encode in (("query", plain.encode_query), ("document", plain.encode_document)):
        ours, theirs = encoder.encode(["whales sing of taxes"], role).vectors, encode(["whales sing of taxes"])  # type: ignore[arg-type]
        lengths = np.linalg.norm(ours) * np.linalg.norm(theirs)
        assert float((ours * theirs).sum()) / lengths > 0.999


def test_a_loss_that_is_no_number_ends_the_run_and_is_never_saved(toy: Toy, tiny_training: Path) -> None:
    """The first step's rate is 0; the second makes weights of 1e38, whose products are infinite."""
    recipe, data = toy("schedule.steps=6", "run.save_steps=1", "schedule.rate=1e38", "schedule.warmup=0.2")
    output = tiny_training.with_name("out")
    with pytest.raises(UserError, match=r"is nan at step 3, learning rate .*: lower schedule.rate") as refused:
        trainer.train(recipe, data, output)
    assert "\n" not in str(refused.value)
    assert not output.exists()
    newest = checkpoints.Folder.beside(output).newest()
    assert newest is not None
    assert str(newest) in str(refused.value)
    assert all(bool(weight.isfinite().all()) for weight in load_file(newest / building.WEIGHTS).values())


def test_an_infinite_gradient_stops_before_the_weights_are_touched(
    toy: Toy, tiny_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, data = toy("schedule.steps=3", "run.save_steps=1")
    real = stepping.Trainer.training_step

    def step(self: Any, *given: Any, **settings: Any) -> Any:
        loss = real(self, *given, **settings)
        if self.state.global_step == 1:
            next(p for p in self.model.parameters() if p.grad is not None).grad.fill_(math.inf)
        return loss

    monkeypatch.setattr(stepping.Trainer, "training_step", step)
    with pytest.raises(UserError, match=r"norm of the gradient is (inf|nan) at step 2"):
        trainer.train(recipe, data, tiny_training.with_name("out"))
    assert names(tiny_training.with_name("out")) == ["checkpoint-1"]


def test_checkpoints_of_another_recipe_or_other_rows_are_refused(
    toy: Toy, tiny_training: Path, at_step: Callable[..., None]
) -> None:
    recipe, data = toy("schedule.steps=3")
    output = tiny_training.with_name("out")
    at_step(2, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(trainer.Stopped):
        trainer.train(recipe, data, output)
    other, _ = toy("schedule.steps=3", "schedule.rate=5e-4", "run.log_steps=2")
    with pytest.raises(
        UserError, match=r"schedule.rate was 0.001 and is 0.0005; give another --output, or --fresh"
    ) as no:
        trainer.train(other, data, output)
    assert "log_steps" not in str(no.value)  # it changes no weight
    lines = data.rows.read_text("utf-8").splitlines(keepends=True)
    data.rows.write_text("".join(lines[::-1]), "utf-8")
    with pytest.raises(UserError, match="of other rows: the rows; give another --output"):
        trainer.train(recipe, data, output)
    data.rows.write_text("".join(lines), "utf-8")
    same, _ = toy("schedule.steps=3", "run.log_steps=2", 'purpose="another sentence"')
    assert trainer.train(same, data, output).steps == 3


def test_an_output_that_is_there_is_refused_before_anything_is_done(toy: Toy, tiny_training: Path) -> None:
    recipe, data = toy()
    output = tiny_training.with_name("out")
    output.mkdir()
    (output / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(UserError, match="is there already, and is no adapter of `obliq train`"):
        trainer.train(recipe, data, output)
    assert not checkpoints.Folder.beside(output).path.exists()


def test_a_second_process_with_the_same_output_is_refused(toy: Toy, tiny_training: Path) -> None:
    from filelock import FileLock

    recipe, data = toy()
    output = tiny_training.with_name("out")
    beside = checkpoints.Folder.beside(output).path
    beside.mkdir()
    with FileLock(beside / ".lock"), pytest.raises(UserError, match="another process is training"):
        trainer.train(recipe, data, output)


def test_the_base_is_left_as_it_was(toy: Toy, tiny_training: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    real = building.build
    monkeypatch.setattr(building, "build", lambda *given: built.append(real(*given)) or built[-1])
    recipe, data = toy("schedule.steps=3")
    trainer.train(recipe, data, tiny_training.with_name("out"))
    original = load_file(tiny_training.with_name("base") / "model.safetensors")
    (model,) = built
    seen = 0
    for name, weight in model.named_parameters():
        assert weight.requires_grad == (".lora_" in name)
        plain = name.removeprefix("0.model.").replace(".base_layer", "")
        if plain in original:
            assert torch.equal(weight.detach(), original[plain])
            seen += 1
    assert seen == len(original)
    moved = [float(w.detach().abs().max()) for name, w in model.named_parameters() if ".lora_B" in name]
    assert min(moved) > 0  # every adapted layer has learned


def test_the_folder_says_how_it_was_made(toy: Toy, tiny_training: Path) -> None:
    recipe, data = toy("schedule.steps=2")
    done = trainer.train(recipe, data, tiny_training.with_name("out"))
    files = {path.name for path in done.folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "modules.json", "1_Pooling", "tokenizer.json"} <= files
    assert {"README.md", "recipe.toml", "training.json", "curves.jsonl", "curves.svg"} <= files
    assert done.manifest == json.loads((done.folder / "training.json").read_text("utf-8"))
    assert done.manifest["digest"] == recipe.digest
    assert read(str(done.folder / "recipe.toml")).digest == recipe.digest
    assert {"rows", "versions", "hardware", "seed", "steps", "seconds", "loss", "dev", "contrast"} <= set(done.manifest)
    assert done.loss == curves.read(done.curves)[-1].loss


def test_dev_scores_are_measured_and_leave_the_weights_alone(
    toy: Toy, tiny_training: Path, write_task: Callable[..., Path]
) -> None:
    """Ten queries, of which two are for choosing; nothing of them changes a weight."""
    corpus = {f"d{n}": f"whales sing of winter night {n}" for n in range(10)}
    gold = {f"q{n}": {f"d{n}": 1} for n in range(10)}
    task = write_task(corpus, {f"q{n}": corpus[f"d{n}"] for n in range(10)}, gold)
    plain = trainer.train(*toy("schedule.steps=3", "lora.dropout=0.2"), tiny_training.with_name("plain"))
    recipe, data = toy("schedule.steps=3", "lora.dropout=0.2", f'evaluation.tasks=["{task}"]', "evaluation.every=2")
    scored = trainer.train(recipe, data, tiny_training.with_name("scored"))
    assert adapter(scored.folder) == adapter(plain.folder)
    assert list(scored.manifest["dev"]) == ["0", "2", "3"]
    assert [point.step for point in curves.read(scored.curves) if point.dev] == [0, 2, 3]
    assert all(0 <= value <= 1 for scores in scored.manifest["dev"].values() for value in scores.values())


@pytest.mark.parametrize(
    ("rows", "processes", "changes", "expected"),
    [
        (154_361, 40, {"accumulation": 2}, 482),  # the paper's: 964 full batches of 160, two by two
        (24, 1, {}, 6),
        (27, 1, {}, 6),  # the last three rows are no batch
        (24, 2, {}, 3),
        (28, 2, {}, 3),  # 7 batches: the last one has no partner
        (28, 1, {"accumulation": 2}, 4),  # 7 batches: the last step has one
    ],
)
def test_steps(rows: int, processes: int, changes: dict[str, int], expected: int) -> None:
    table = {"name": "r", "purpose": "a test", "model": {"base": "x"}, "schedule": {"epochs": 1.0}}
    recipe = Recipe.model_validate({**table, "batch": {"per_device": 4, **changes}})
    assert trainer.steps(recipe, rows, processes) == expected


def test_each_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    """10 rows in batches of 4: two are left over, others in each epoch; seed and epoch alone decide."""

    def batches(seed: int, epoch: int) -> list[list[int]]:
        order = stepping.Shuffled(range(10), 4, drop_last=True, seed=seed)  # type: ignore[arg-type]
        order.set_epoch(epoch)
        assert len(order) == 2
        return list(order)

    found = batches(3, 0)
    assert [len(one) for one in found] == [4, 4]
    assert len({row for one in found for row in one} & set(range(10))) == 8
    assert batches(3, 0) == found
    assert batches(3, 1) != found
    assert batches(4, 0) != found
    assert {row for epoch in range(20) for one in batches(3, epoch) for row in one} == set(range(10))


def test_too_few_rows_for_a_batch_are_refused() -> None:
    recipe = Recipe.model_validate({"name": "r", "purpose": "a test", "model": {"base": "x"}})
    with pytest.raises(UserError, match=r"3 rows are too few for a batch of 4 on each of 1 device; lower batch"):
        trainer.steps(recipe, 3)


def test_a_run_that_goes_on_saves_and_logs_as_it_is_told_now() -> None:
    """The trainer takes both from the checkpoint's state, where the first session's numbers stand."""
    state = SimpleNamespace(global_step=4, save_steps=2**40, logging_steps=9)
    watch = Watch(Asked(), lambda number: number, None, None, 0, lambda *_: None)
    watch.on_train_begin(SimpleNamespace(save_steps=2, logging_steps=1), state, None)
    assert (state.save_steps, state.logging_steps) == (2, 1)
