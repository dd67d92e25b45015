"""OBLIQ-IR at small size: an adapter that ships with this package, on all-MiniLM-L6-v2 from another; no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import resolve
from obliq_eval.errors import MissingExtraError
from obliq_models.repositories import Repository
from obliq_models.retrievers import minilm

if TYPE_CHECKING:
    from obliq_models.retrievers.obliq_ir import ObliqIR

FOLDER = Path(__file__).parent.parent / "weights" / "obliq-ir-mini"
"""What `obliq train obliq-ir-mini` left."""
WEIGHTS = "adapter_model.safetensors"


def load(name: str, revision: str | None = None, *, dtype: str = "float32", **settings: Any) -> ObliqIR:
    """Load the adapter on its base after checking the weights of both.

    Args:
        name: Name of the model.
        revision: SHA-256 of the adapter's weights.
        dtype: Of all weights.
        **settings: See `obliq_ir.load`; adapter and base are given.

    Raises:
        MissingExtraError: If peft, or the package that carries the base, is not installed.
        UserError: If the weights of either are missing, or others than those that were tested.
    """
    base = resolve("minilm")
    minilm.check_weights(FOLDER / WEIGHTS, revision, "obliq")
    minilm.folder(name, base.revision, extra="mini")
    try:
        import peft  # noqa: F401 -- with `obliq_ir` it would be another extra
    except ImportError as error:
        raise MissingExtraError("peft", "mini", f"the model {name}") from error
    from obliq_models.retrievers import adapters, obliq_ir  # heavy, so only after the checks

    model = obliq_ir.load(name, revision, path=str(FOLDER), base=adapters.MINILM, dtype=dtype, **settings)
    model.encoder.base = Repository(base.name, base.revision)  # where its package lies makes no other vectors
    return model
