"""`obliq train`: a whole run, its dry run, the recipes, and what is refused in one sentence."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.errors import UserError
from obliq_train import ablation, at_hand, checkpoints, serving, trainer
from obliq_train import recipe as recipes
from obliq_train.checkpoints import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = CliRunner()
SCRIPT = "import sys; from obliq_eval.cli import main; sys.argv[0] = 'obliq'; main()"


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, ["train", *map(str, arguments)])


def refused(*arguments: object) -> str:
    """Return the one sentence with which a command ends."""
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    return str(lines[0].removeprefix("error: "))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, write_tiny_training: Callable[[Path], Path]) -> tuple[Path, Any]:
    """Return the folder of a tiny adapter, and how the command ended that made it."""
    recipe = write_tiny_training(tmp_path_factory.mktemp("trained"))
    output = recipe.parent / "adapter"
    return output, run(recipe, "-o", output)


def test_a_run_ends_with_one_line_that_says_how_to_evaluate_it(trained: tuple[Path, Any]) -> None:
    """24 rows, 4 a batch: 6 steps."""
    output, done = trained
    assert done.exit_code == 0, done.output
    place = re.escape(str(output))
    ask = rf"obliq run -t OBLIQ-Mini-Math -m {place}\.toml"
    assert re.fullmatch(rf"{place}: 6 steps in \d+ s, last loss \d\.\d{{4}}; evaluate it with: {ask}\n", done.stdout)
    assert {"adapter_config.json", "adapter_model.safetensors", "recipe.toml", "training.json", "README.md"} <= {
        path.name for path in output.iterdir()
    }
    assert (output.parent / "adapter-run" / "rows.jsonl").is_file()


def test_the_model_file_that_it_names_loads_the_adapter_as_it_was_trained(trained: tuple[Path, Any]) -> None:
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from obliq_models.loading import encoder_of, load
    from obliq_models.naming import find

    output, _ = trained
    entry = find(f"{output}.toml")
    assert (entry.query_prefix, entry.document_prefix) == ("query: ", "passage: ")
    encoder = encoder_of(load(entry, "cpu"))
    assert encoder is not None
    plain = SentenceTransformer(str(output), device="cpu")
    for role, encode in (("query", plain.encode_query), ("document", plain.encode_document)):
        ours = encoder.encode(["whales sing of taxes"], role).vectors  # type: ignore[arg-type]
        assert np.abs(ours - encode(["whales sing of taxes"])).max() < 1e-6


def test_it_is_not_trained_twice_unless_it_is_to_begin_again(tiny_training: Path) -> None:
    """Begun again, with the same seed, it has the same weights; the rows are found again."""
    output = tiny_training.parent / "adapter"
    assert run(tiny_training, "-o", output).exit_code == 0
    weights = (output / "adapter_model.safetensors").read_bytes()
    rows = output.parent / "adapter-run" / "rows.jsonl"
    written = rows.stat().st_mtime_ns
    assert "is trained already" in refused(tiny_training, "-o", output)
    assert "no part is called 'nobody'" in refused(
        tiny_training, "-o", output, "--fresh", "--file", "nobody=rows.jsonl"
    )
    assert (output / "adapter_model.safetensors").read_bytes() == weights, "what is refused costs nothing"
    again = run(tiny_training, "-o", output, "--fresh", "--json")
    assert again.exit_code == 0, again.output
    assert (output / "adapter_model.safetensors").read_bytes() == weights
    assert rows.stat().st_mtime_ns == written
    told = json.loads(again.stdout)
    assert (told["steps"], told["folder"]) == (6, str(output))
    assert told["evaluate"].endswith(f"-m {output}.toml")


def test_beginning_again_says_what_it_cannot_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as checkpoints are there, so is the file that says whose they are."""
    output, beside = tmp_path / "mini", tmp_path / "mini-run"
    folder = Folder.beside(output)
    (beside / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    (beside / "run.json").touch()

    def busy(place: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(place))

    monkeypatch.setattr("obliq_train.checkpoints.shutil.rmtree", busy)
    with pytest.raises(UserError, match=r"cannot remove .*/checkpoint-3: Device or resource busy"):
        checkpoints.clear(folder, output)
    assert (beside / "run.json").is_file()


def test_beginning_again_removes_nothing_that_it_does_not_know_or_before_it_can_begin(tiny_training: Path) -> None:
    """Neither checkpoints that no run of ours wrote, nor an adapter whose base has gone since."""
    output = tiny_training.parent / "adapter"
    foreign = tiny_training.parent / "adapter-run" / "checkpoints" / "mine"
    foreign.mkdir(parents=True)
    for more in ((), ("--fresh",)):
        assert "holds something that `obliq train` did not write" in refused(tiny_training, "-o", output, *more)
        (foreign.parents[1] / ".lock").touch()  # one of ours, but whose checkpoints?
        assert "no run.json says that" in refused(tiny_training, "-o", output, *more)
        (foreign.parents[1] / ".lock").unlink()
    assert foreign.is_dir()
    shutil.rmtree(foreign.parents[1])
    assert run(tiny_training, "-o", output).exit_code == 0
    assert "no layer that a vector is read from" in refused(
        tiny_training, "-o", output, "--fresh", "--set", 'lora.targets=["nothing"]'
    )
    assert (output / "adapter_model.safetensors").is_file()
    assert (tiny_training.parent / "adapter-run" / "run.json").is_file()


def test_beginning_again_keeps_what_somebody_else_put_there(tiny_training: Path) -> None:
    """A file beside ours is named; a folder with another `training.json` is none of ours; a link stays a link."""
    output, real = tiny_training.parent / "adapter", tiny_training.parent / "elsewhere"
    real.mkdir()
    output.symlink_to(real)
    assert run(tiny_training, "-o", output).exit_code == 0
    mine = real / "notes" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("three years", "utf-8")
    assert "adapter holds notes/mine.txt, which `obliq train` did not write" in refused(
        tiny_training, "-o", output, "--fresh"
    )
    shutil.rmtree(mine.parent)
    assert run(tiny_training, "-o", output, "--fresh").exit_code == 0
    assert output.is_symlink()
    assert (real / "adapter_model.safetensors").is_file()
    (real / "training.json").write_text("{}", "utf-8")
    assert "is no adapter of `obliq train`" in refused(tiny_training, "-o", output, "--fresh")


def test_what_is_trained_already_says_whether_by_another_recipe(tiny_training: Path) -> None:
    """And where a process was killed before it wrote the model's file, this is made up for."""
    output = tiny_training.parent / "adapter"
    assert run(tiny_training, "-o", output).exit_code == 0
    beside = Path(f"{output}.toml")
    written = beside.read_text("utf-8")
    beside.unlink()
    other = ("--set", "schedule.rate=2e-3")
    assert "is trained already, by another recipe: give" in refused(tiny_training, "-o", output, *other)
    assert not beside.exists()
    assert "is trained already: give" in refused(tiny_training, "-o", output)
    assert beside.read_text("utf-8") == written


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("a b", "a-b"),
        ("o@x", "o-x"),
        ("o:x", "o-x"),
        ("a__b", "a_b"),
        ("__", "adapter"),
        ("é.toml", "é"),
        ("é" * 80, "é" * 40),
    ],
)
def test_a_folder_s_name_becomes_a_model_s(name: str, plain: str) -> None:
    assert serving.plain_name(name) == plain


def test_an_output_of_any_name_can_be_used_by_the_command_that_is_told(tiny_training: Path) -> None:
    """The command is quoted as a shell wants it, and a plus sign in a file's name divides nothing."""
    from obliq_models.naming import find

    output = tiny_training.parent / "a+b @c:d"
    done = run(tiny_training, "-o", output, "--set", "schedule.steps=2")
    assert done.exit_code == 0, done.output
    *_, told = shlex.split(done.stdout.partition("evaluate it with: ")[2])
    assert told == f"{output}.toml"
    assert find(told).name == "local/a-b-c-d"


def test_a_second_process_is_refused_before_it_touches_the_rows(
    tiny_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first one would train on the second one's."""
    from filelock import FileLock

    from obliq_train import data

    output = tiny_training.parent / "adapter"
    beside = Folder.beside(output)
    beside.path.mkdir()
    monkeypatch.setattr(data, "prepare", lambda *_: pytest.fail("rows were prepared"))
    with FileLock(beside.lock):
        assert "another process is training in" in refused(tiny_training, "-o", output)


def test_a_request_to_stop_after_the_last_step_ends_a_family_too(
    tiny_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter is written, and nothing begins after it."""
    output, real = tiny_training.parent / "adapter", trainer._write

    def asked(*given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        real(*given)

    monkeypatch.setattr(trainer, "_write", asked)
    done = run(tiny_training, "-o", output)
    assert (done.exit_code, done.stdout) == (130, "")
    assert f"SIGINT came after the last step: {output} is written" in done.stderr
    assert (output / "adapter_model.safetensors").is_file()
    assert Path(f"{output}.toml").is_file()


def test_a_closed_output_is_no_error(tiny_training: Path) -> None:
    output = tiny_training.parent / "adapter"
    command = shlex.join([sys.executable, "-c", SCRIPT, "train", str(tiny_training), "-o", str(output)])
    done = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (output / "adapter_model.safetensors").is_file()


def test_a_file_that_is_given_and_cannot_be_read_is_no_plan(tiny_training: Path) -> None:
    absent = tiny_training.parent / "absent.jsonl"
    assert "its file" in (told := refused(tiny_training, "--dry-run", "--file", f"toy={absent}"))
    assert "--file toy=" in told
    absent.write_text("{", "utf-8")
    assert "absent.jsonl" in refused(tiny_training, "--dry-run", "--file", f"toy={absent}")


def test_a_value_that_a_file_sets_is_no_default_even_if_it_is_the_same(tiny_training: Path) -> None:
    shown = json.loads(run(tiny_training, "--show", "--json", "--set", "lora.rank=4").stdout)
    source = {row["key"]: row["source"] for row in shown}
    assert source["schedule.epochs"] == "this recipe"
    assert source["lora.dropout"] == "this recipe"
    assert source["schedule.shape"] == "default"
    assert source["part.toy.k"] == "default"
    own = tiny_training.parent / "own.toml"
    own.write_text(f'extends = "{tiny_training.name}"\nschedule.rate = 2e-4\n', "utf-8")
    shown = json.loads(run(own, "--show", "--json").stdout)
    assert {row["key"]: row["source"] for row in shown}["schedule.rate"] == "this recipe"


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_an_output_needs_a_name(tiny_training: Path, place: str) -> None:
    assert "no folder of its own" in refused(tiny_training, "-o", place)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.query_length=2", "model.query_length is 2, and the special tokens of"),
        ("schedule.rate=1e300", "schedule.rate"),
        ("model.query_length=1000000000000000000000", "model.query_length"),
        ("lora.rank=100000000", "lora.rank is 100,000,000, and no change of a layer"),
        ("batch.per_device=1", ""),
    ],
)
def test_what_could_teach_nothing_is_refused_before_anything_is_written(
    tiny_training: Path, change: str, told: str
) -> None:
    """One row is a contrast as long as it has negatives."""
    output = tiny_training.parent / "adapter"
    if told:
        assert told in refused(tiny_training, "-o", output, "--set", change)
        assert not output.exists()
    else:
        assert run(tiny_training, "-o", output, "--set", change).exit_code == 0


def test_one_row_without_negatives_is_no_contrast(tiny_training: Path) -> None:
    rows = tiny_training.parent / "rows.jsonl"
    told = [json.loads(line) for line in rows.read_text("utf-8").splitlines()]
    rows.write_text("".join(json.dumps({**row, "neg": []}) + "\n" for row in told), "utf-8")
    for more in ((), ("--dry-run",)):
        assert "an anchor is contrasted with nothing" in refused(
            tiny_training, "-o", tiny_training.parent / "adapter", "--set", "batch.per_device=1", *more
        )


def test_an_adapter_that_has_learnt_nothing_is_not_written(tiny_training: Path) -> None:
    """The only step of a warm-up has the rate 0."""
    output = tiny_training.parent / "adapter"
    told = refused(tiny_training, "-o", output, "--set", "schedule.epochs=0.1", "--set", "schedule.warmup=0.9")
    assert "nothing was learnt in 1 step, and nothing is written" in told
    assert not output.exists()


def test_checkpoints_of_another_recipe_are_refused(tiny_training: Path) -> None:
    import shutil

    output = tiny_training.parent / "adapter"
    assert run(tiny_training, "-o", output).exit_code == 0
    shutil.rmtree(output)  # as if it had been killed before the end
    told = refused(tiny_training, "-o", output, "--set", "schedule.rate=5e-4")
    assert "schedule.rate was 0.001 and is 0.0005" in told
    assert "--fresh" in told
    assert not output.exists()
    assert run(tiny_training, "-o", output, "--set", "schedule.rate=5e-4", "--fresh").exit_code == 0


def test_a_dry_run_says_what_will_happen_and_leaves_nothing(tiny_training: Path) -> None:
    """A text is cut where <s> and </s>, the prefix and its words have more tokens than the limit."""
    before = sorted(tiny_training.parent.rglob("*"))
    done = run(tiny_training, "--dry-run")
    assert done.exit_code == 0, done.output
    assert re.search(r"optimiser steps +6\b", done.stdout)
    assert re.search(
        r"contrast on one device +12 documents: own positive, 2 own negatives, 3 positives and 6", done.stdout
    )
    assert "memory of a device" in done.stdout
    told = json.loads(run(tiny_training, "--dry-run", "--json").stdout)
    assert (told["steps"], told["warmup"], told["rows"], told["missing"]) == (6, 1, {"toy": 24}, [])
    assert told["contrasts"][0]["documents"] == 12
    assert told["memory"]["total"] == sum(
        told["memory"][part] for part in ("weights", "optimiser", "activations", "contrast")
    )
    assert sorted(tiny_training.parent.rglob("*")) == before


def test_a_dry_run_names_the_parts_whose_rows_are_not_there() -> None:
    done = run("obliq-ir-3b", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "gathered from 40 devices" in done.stdout
    for part in ("twitter", "math", "writing", "congress"):
        assert f"--file {part}=FILE" in done.stderr
    assert "--set part.writing-graph.descriptions=FILE" in done.stderr


def test_a_hub_that_says_nothing_is_asked_once(tiny_training: Path) -> None:
    """What is in its cache, nothing here, is all that is looked at: one sentence says what could not be fetched."""
    rows = tiny_training.parent / "rows.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, "train", "obliq-ir-3b", "--dry-run", "--json", "--file", f"math={rows}"],
            env={
                **{key: value for key, value in os.environ.items() if "PROXY" not in key.upper()},
                "HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HUB_OFFLINE": "0",
                "HF_HOME": str(tiny_training.parent / "hf"),
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        silent.setblocking(False)
        asked = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert asked == 1
    assert told["rows"]["math"] == 24
    assert told["memory"]["parameters"] == 3_212_749_824
    assert ["the hub cannot be asked" in note for note in told["notes"]].count(True) == 1


def test_a_hub_that_answers_is_asked_and_none_where_nothing_is_its(
    tiny_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    from obliq_eval.demo.hub import LoopbackHub

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    own, paper = recipes.read(str(tiny_training)), recipes.read("obliq-ir-3b")
    with LoopbackHub([]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for recipe, changes, asked in (
            (own, [], 0),
            (paper, [], 1),
            (own, ["part.toy.corpus=OBLIQ-Writing", "part.toy.sentences=true"], 1),
        ):
            before = len(hub.requests)
            given = recipes.read(str(tiny_training), changes) if changes else recipe
            with at_hand.promptly(given, {}):
                assert not constants.is_offline_mode()
            assert len(hub.requests) - before == asked
    with at_hand.promptly(paper, {}):  # it is gone
        assert constants.is_offline_mode()
    assert not constants.is_offline_mode()


def test_a_dry_run_takes_the_parts_that_are_there(tiny_training: Path) -> None:
    with tiny_training.open("a", encoding="utf-8") as file:
        file.write('\n[[part]]\nname = "absent"\n')
    told = json.loads(run(tiny_training, "--dry-run", "--json").stdout)
    assert told["rows"] == {"toy": 24, "absent": None}
    assert told["steps"] is None
    assert ["absent" in wanted for wanted in told["missing"]] == [True]
    rows = tiny_training.parent / "rows.jsonl"
    given = json.loads(run(tiny_training, "--dry-run", "--json", "--file", f"absent={rows}").stdout)
    assert given["missing"] == []


def test_the_list_names_every_recipe_and_what_it_changes() -> None:
    found = {row["recipe"]: row for row in json.loads(run("--list", "--json").stdout)}
    assert set(found) == set(recipes.names())
    assert found["k1"]["extends"] == "obliq-ir-3b"
    assert found["k1"]["differs in"] == "part.writing-graph.k = 1"
    assert found["obliq-ir-3b"]["differs in"] is None
    assert all(row["purpose"] for row in found.values())


def test_show_gives_each_value_with_its_source() -> None:
    told = json.loads(run("k1", "--show", "--json", "--set", "schedule.rate=1e-4").stdout)
    found = {row["key"]: (row["value"], row["source"]) for row in told}
    assert found["schedule.rate"] == (1e-4, "--set")
    assert found["part.writing-graph.k"][0] == 1
    assert "H.1" in found["part.writing-graph.k"][1]
    assert found["loss.mask"] == (True, "default")
    assert found["loss.scale"] == (50.0, recipes.read("k1").sources["loss.scale"])
    assert "k1: " in run("k1", "--show").stdout


def test_what_means_nothing_for_a_reranker_is_not_shown() -> None:
    keys = {row["key"] for row in json.loads(run("distilled-listwise", "--show", "--json").stdout)}
    assert {"model.base", "model.document_length", "schedule.rate", "leave_out.parts"} <= keys
    assert not [key for key in keys if key.startswith("loss.")]
    assert not keys & {"model.pooling", "model.query_prefix", "model.encode_query_length"}


@pytest.mark.parametrize(
    ("options", "judged"),
    [
        (("--data", "mini"), "held-out"),
        ((), "test"),
        (("--data", "mini", "--queries", "test"), "test"),
        (("--queries", "held-out"), "held-out"),
    ],
)
def test_what_a_family_is_judged_on(
    options: tuple[str, ...], judged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out queries for small data, test queries else, unless it is said; nothing is trained here."""

    def found(family: str, **given: Any) -> ablation.Ablation:
        return ablation.Ablation(family, given["data"], given["queries"], (), (), {}, {}, {})

    monkeypatch.setattr(ablation, "run", found)
    monkeypatch.setattr(ablation.Ablation, "notes", ())
    done = run("dose", "--ablate", "-o", tmp_path, "--json", *options)
    assert json.loads(done.stdout)["control"] == judged


def test_families_are_listed_where_none_is_named() -> None:
    from obliq_train.ablation import FAMILIES

    done = run("--ablate", "--json")
    assert [row["family"] for row in json.loads(done.stdout)] == list(FAMILIES)
    assert 'did you mean "teacher-graph"?' in refused("--ablate", "teacher-grap", "--data", "mini", "-o", "x")
    assert "-o FOLDER" in refused("--ablate", "dose", "--data", "mini")


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "an unknown recipe": (("obliq-ir-3c",), 'did you mean "obliq-ir-3b"?'),
    "a file that is not there": (("nowhere.toml",), "nowhere.toml"),
    "nothing": ((), "name a recipe"),
    "an unknown key": (("RECIPE", "--set", "schedule.rat=1e-4"), 'schedule.rat is not a key of a recipe; did'),
    "an unknown table": (("RECIPE", "--set", "schedul.rate=1e-4"), "schedul"),
    "no value": (("RECIPE", "--set", "schedule.rate"), "KEY=VALUE"),
    "a wrong value": (("RECIPE", "--set", "schedule.rate=fast"), "schedule.rate"),
    "no part's file": (("RECIPE", "--file", "rows.jsonl"), "PART=FILE"),
    "a file for no part": (("RECIPE", "--file", "toi=rows.jsonl"), "toi"),
    "a part's file that is not there": (("RECIPE", "--file", "toy=nowhere.jsonl"), "nowhere.jsonl is not there"),
    "a base that is not there": (("RECIPE", "--set", "model.base=./nowhere"), "nowhere"),
    "a base that is causal": (
        ("RECIPE", "--set", "model.base=causal", "--set", 'lora.targets=["gate_proj"]'), "its attention is causal"
    ),
    "a target that the base has not": (("RECIPE", "--set", 'lora.targets=["q_proj"]'), "q_proj"),
    "another data": (("RECIPE", "--data", "maxi"), "only mini is known"),
    "seeds without a family": (("RECIPE", "--seeds", "0,1"), "--seeds belongs to --ablate"),
    "queries without a family": (("RECIPE", "--queries", "test"), "--queries and --members belong to --ablate"),
    "queries of no kind": (
        ("--ablate", "dose", "--queries", "dev", "-o", "x"), "--queries is 'dev': test and held-out are known"
    ),
    "two wishes": (("RECIPE", "--list", "--show"), "do not go together"),
    "too few rows": (("RECIPE", "--set", "batch.per_device=25"), "24 rows are too few"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told_in_one_sentence(case: str, tiny_training: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny_training.parent)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    arguments, told = BAD[case]
    if "model.base=causal" in arguments:
        write_causal(Path("causal"))
    given = [tiny_training.name if one == "RECIPE" else one for one in arguments]
    assert told in refused(*given, *(("-o", "out") if "RECIPE" in arguments else ()))
    assert not Path("out").exists()


def write_causal(folder: Path) -> None:
    """Write a tiny Llama beside the tokenizer of the tiny base."""
    import shutil

    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=420, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64,
    )  # fmt: skip
    LlamaModel(config).save_pretrained(folder)
    for file in Path("base").glob("*token*"):
        shutil.copy(file, folder)


def test_a_recipe_is_not_written_over(tiny_training: Path) -> None:
    """Without -o the output is named as the recipe, and the file beside it that says how it is read would be too."""
    text = tiny_training.read_bytes()
    told = refused(tiny_training, "-o", tiny_training.with_suffix(""))
    assert f"{tiny_training} is there already, where the file would be written that says how" in told
    assert tiny_training.read_bytes() == text
    assert not tiny_training.with_suffix("").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--dry-run",), "--dry-run is for one recipe"),
        (("--fresh",), "--fresh is for one recipe"),
        (("--set", "run.seed = 3"), "given as --seeds 0,1,2"),
    ],
)
def test_what_a_family_does_not_take_is_refused(tmp_path: Path, more: tuple[str, ...], told: str) -> None:
    assert told in refused("dose", "--ablate", "--data", "mini", "-o", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_something_else_is_refused(tiny_training: Path) -> None:
    folder = tiny_training.parent
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("three years", "utf-8")
    for output in (folder / "rows.jsonl", folder / "mine"):
        for more in ((), ("--fresh",)):
            assert "is no adapter of `obliq train`" in refused(tiny_training, "-o", output, *more)
    assert (folder / "mine" / "thesis.txt").read_text("utf-8") == "three years"


@pytest.mark.parametrize("package", ["peft", "accelerate"])
def test_a_package_that_is_missing_is_named_before_any_work(
    package: str, tiny_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    output = tiny_training.parent / "out"
    told = refused(tiny_training, "-o", output)
    assert f"needs the package {package}: pip install 'obliq[train]'" in told
    assert not output.with_name("out-run").exists()


def test_the_command_as_it_is_typed_refuses_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "train", "obliq-ir-3c"],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no recipe is called 'obliq-ir-3c'")
    assert done.stderr.count("\n") == 1
