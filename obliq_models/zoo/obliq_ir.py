"""OBLIQ-IR as published: the adapter, the merged weights, and the row that has no weights."""

from __future__ import annotations

from typing import Any

from obliq_eval.catalogue import ModelEntry
from obliq_models.pins import PINS
from obliq_models.zoo.words import UNMASKING

_OBLIQ_IR = "obliq_models.retrievers.obliq_ir:load"
_BASE = "nvidia/llama-nv-embed-reasoning-3b"
_BASE_TERMS = (
    "its repository says CC-BY-NC-4.0 in its LICENSE file and CC-BY-4.0 in its README, and the Llama 3.2 Community "
    "License applies as well; ask NVIDIA before any commercial use"
)
_TRAINING_DATA = (
    "cc-by-nc-4.0 (DataScience-UIBK/OBLIQ-IR-Data): synthetic queries and graph pairs over the texts of OBLIQ-Bench, "
    "cc-by-4.0; the authorship encoder behind the pairs was trained on posts from Reddit"
)
_OBLIQ_IR_FACTS: dict[str, Any] = {
    "licence": "cc-by-nc-4.0",
    "base_licence": _BASE_TERMS,
    "query_length": 256,
    "document_length": 1024,
    "query_prefix": "query: ",
    "document_prefix": "passage: ",
    "extra": "obliq-ir",
    "risk": f"{UNMASKING}; Python code that comes with the published base is run when it is loaded",
}


def _pinned(repository: str) -> str:
    """Return a repository with its commit, where that is known."""
    commit = PINS[repository]
    return f"{repository}@{commit}" if commit else repository


OBLIQ_IR: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="DataScience-UIBK/OBLIQ-IR-3B-LoRA",
        alias="obliq-ir",
        loader=_OBLIQ_IR,
        revision=PINS["DataScience-UIBK/OBLIQ-IR-3B-LoRA"] or "main",
        summary="OBLIQ-IR, dense: a LoRA adapter on a 3B bidirectional base; the checkpoint that the paper reports",
        base=_pinned(_BASE),
        data_licence=_TRAINING_DATA,
        settings={
            "base": _BASE,
            "base_revision": PINS[_BASE],
            "dtype": "bfloat16",
            "dims": 3072,
        },
        dims=3072,
        n_parameters=3_237_063_680,
        memory="6.5 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir",
        **_OBLIQ_IR_FACTS,
    ),
    ModelEntry(
        name="DataScience-UIBK/OBLIQ-IR-3B",
        alias="obliq-ir-merged",
        loader=_OBLIQ_IR,
        revision=PINS["DataScience-UIBK/OBLIQ-IR-3B"] or "main",
        summary="OBLIQ-IR with the adapter folded into bfloat16 weights, which loses a little: Math .1407, not .1403",
        base=_pinned(_BASE),
        data_licence=_TRAINING_DATA,
        settings={"dtype": "bfloat16", "dims": 3072},
        dims=3072,
        n_parameters=3_212_749_824,
        memory="6.4 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir-merged",
        **_OBLIQ_IR_FACTS,
    ),
    ModelEntry(
        name="obliq/OBLIQ-IR-no-distillation",
        alias="obliq-ir-no-distillation",
        loader="obliq_models.retrievers.obliq_ir:without_weights",
        revision="none",
        summary="OBLIQ-IR trained without the authorship graph; no weights are published: give a checkpoint as "
        "obliq-ir-no-distillation@FOLDER",
        base=_pinned(_BASE),
        settings={"dtype": "bfloat16"},
        memory="6.5 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir-no-distillation",
        **_OBLIQ_IR_FACTS,
    ),
)
