"""One of the processes of `test_losses_distributed.py`: losses and gradients of its half of the rows, to a file."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from obliq_eval.edges import read_edges
from obliq_train.batches import TEXTS, TrainingSet
from obliq_train.losses import Contrast
from obliq_train.recipe import Loss, Recipe
from obliq_train.rows import read_rows

folder = Path(sys.argv[1])
distributed.init_process_group("gloo")
rank = distributed.get_rank()
plain = SentenceTransformer(str(folder / "model"), device="cpu")
for name, weight in plain.named_parameters():
    weight.requires_grad_("pooler" not in name)  # DDP waits for a gradient of every weight that may have one
model = DistributedDataParallel(plain)
rows = list(read_rows(folder / "rows.jsonl"))
edges = {"": read_edges(folder / "edges.jsonl")}
half = len(rows) // 2
described = Recipe.model_validate_json((folder / "recipe.json").read_text("utf-8"))
found = {}
for kind, gather, budget in product(("infonce", "hybrid"), (True, False), (40, 60, 10_000)):
    recipe = described.model_copy(update={"loss": Loss(kind=kind, gather=gather)})
    made = TrainingSet.of(rows, edges, plain.tokenizer, recipe)
    contrast = Contrast(plain, recipe.loss, budget)
    contrast.model = model
    batch = made.collate([{"row": number} for number in range(rank * half, (rank + 1) * half)])
    model.zero_grad()
    loss = contrast([{name.removeprefix(TEXTS): value for name, value in batch.items()}])
    loss.backward()
    gradient = torch.cat([weight.grad.flatten() for weight in plain.parameters() if weight.grad is not None])
    found[f"{kind} {gather} {budget}"] = {"loss": loss.item(), "gradient": gradient}
torch.save(found, folder / f"found-{rank}.pt")
distributed.destroy_process_group()
