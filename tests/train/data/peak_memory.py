"""Print two numbers of bytes: the activations that are planned, and the peak of a real step above what was there."""

from __future__ import annotations

import sys
from pathlib import Path

from obliq_train import build, footprint
from obliq_train.batches import COLUMN, TEXTS, TrainingSet
from obliq_train.losses import Contrast
from obliq_train.recipe import Base, Batch, Lora, Recipe, Schedule
from obliq_train.rows import Passage, Row

ROWS = 4
RECIPE = Recipe(
    name="r",
    purpose="a test",
    model=Base(base="obliq/all-MiniLM-L6-v2", query_length=128, document_length=128, encode_document_length=256),
    lora=Lora(targets=("query", "key", "value", "dense")),
    batch=Batch(per_device=ROWS),
    schedule=Schedule(epochs=1.0),
)


def told(key: str) -> int:
    """Return a figure of this process in bytes, as the kernel keeps it."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def main() -> None:
    """Train on one row, so that everything is loaded, then on all of them."""
    rows = [Row(Passage("", f"{n} {'word ' * 60}"), (Passage("", f"{n + 100} {'word ' * 60}"),)) for n in range(ROWS)]
    model = build.build(RECIPE).train()
    texts = TrainingSet.of(rows, {}, model.tokenizer, RECIPE)
    loss = Contrast(model, RECIPE.loss, RECIPE.batch.sub_batch_tokens)

    def step(numbers: range) -> None:
        batch = texts.collate([{COLUMN: number} for number in numbers])
        loss([{name.removeprefix(TEXTS): value for name, value in batch.items()}]).backward()

    step(range(1))
    before = told("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins again
    step(range(ROWS))
    found = footprint.footprint(
        RECIPE,
        footprint.shape_of(RECIPE),
        longest=int(texts.lengths.max()),
        batch_tokens=int(texts.lengths.sum()),
        texts=2 * ROWS,
        contrasted=ROWS,
    )
    sys.stdout.write(f"{found.activations} {told('VmHWM') - before}\n")


main()
