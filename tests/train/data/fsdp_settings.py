"""Print what accelerate is told about FSDP while a trainer of ours is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from accelerate import accelerator

from obliq_train import build, recipe, trainer
from obliq_train.batches import TrainingSet
from obliq_train.checkpoints import Folder
from obliq_train.losses import Contrast
from obliq_train.rows import read_rows
from obliq_train.stepping import Trainer

PLUGINS: list[Any] = []


class State(accelerator.AcceleratorState):
    """The state as it is, which notes the plugin that it is given."""

    def __init__(self, *given: Any, fsdp_plugin: Any = None, **settings: Any) -> None:
        PLUGINS.append(fsdp_plugin)
        super().__init__(*given, fsdp_plugin=fsdp_plugin, **settings)


accelerator.AcceleratorState = State
place = Path(sys.argv[1])
found = recipe.read(str(place))
model = build.build(found)
rows = list(read_rows(place.parent / "rows.jsonl"))
texts = TrainingSet.of(rows, {}, model.tokenizer, found)
folder = Folder.beside(place.parent / "out")
args = trainer.arguments(found, folder)
Trainer(model, args, texts, Contrast(model, found.loss, 1024), folder=folder, keep=1)
(plugin,) = PLUGINS
sys.stdout.write(
    f"version {plugin.fsdp_version}\nreshard {plugin.reshard_after_forward}\n"
    f"offload {bool(getattr(plugin.cpu_offload, 'offload_params', plugin.cpu_offload))}\n"
    f"wraps {', '.join(plugin.transformer_cls_names_to_wrap)}\n"
)
