"""obliq-ir-mini: the adapter that comes with this package, on all-MiniLM-L6-v2; no network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from obliq_models.retrievers.obliq_ir import ObliqIR

FOLDER = Path(__file__).parent.parent / "weights" / "obliq-ir-mini"


def load(name: str, revision: str | None = None, **settings: Any) -> ObliqIR:
    """Load the adapter after checking its weights.

    Args:
        name: Name of the model.
        revision: SHA-256 of `adapter_model.safetensors`.
        **settings: See `obliq_ir.load`.

    Raises:
        MissingExtraError: If peft, or the package that carries the base, is not installed.
        UserError: If the weights are others than `revision` says.
    """
    weights = FOLDER / "adapter_model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "no file"
    if revision is not None and found != revision:
        raise UserError(f"{weights}: expected SHA-256 {revision}, found {found}; reinstall obliq")
    from obliq_models.retrievers import adapters, obliq_ir  # heavy, so only after the check

    return obliq_ir.load(name, revision, path=str(FOLDER), base=adapters.MINILM, **settings)
