"""The table of models: one entry each, its code named by reference and imported only when it is loaded."""

from __future__ import annotations

from obliq_eval.catalogue import ModelEntry, register
from obliq_models.pipelines import full
from obliq_models.zoo.agents import AGENTS
from obliq_models.zoo.authorship import AUTHORSHIP
from obliq_models.zoo.bundled import BUNDLED
from obliq_models.zoo.obliq_ir import OBLIQ_IR
from obliq_models.zoo.published import PUBLISHED

__all__ = ["ENTRIES", "register"]

ENTRIES: tuple[ModelEntry, ...] = (
    *BUNDLED,
    *OBLIQ_IR,
    *AUTHORSHIP,
    *PUBLISHED,
    full(next(entry for entry in OBLIQ_IR if entry.alias == "obliq-ir")),
    *AGENTS,
)
