"""OUTPUT, the folder of a trained model: what is written into it, and what of a folder a training has written."""

from __future__ import annotations

import importlib.metadata
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import SHOWN, UserError
from obliq_eval.manifest import hardware, now, versions
from obliq_train import checkpoints, curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

    from obliq_train.batches import TrainingSet
    from obliq_train.data import Data
    from obliq_train.listwise import Lists
    from obliq_train.recipe import Recipe

MANIFEST, RECIPE, CURVES, PICTURE, CARD = "training.json", "recipe.toml", "curves.jsonl", "curves.svg", "README.md"


@dataclass(frozen=True)
class Trained:
    """What came out.

    Args:
        folder: The adapter's folder.
        steps: Optimiser steps.
        seconds: Of training, over all sessions, evaluation included.
        loss: Mean over the steps since the last point but one of the curves; None if a stopped run has lost them.
        curves: The file of the curves.
        manifest: Content of `training.json`.
    """

    folder: Path
    steps: int
    seconds: float
    loss: float | None
    curves: Path
    manifest: Mapping[str, Any]


def check_place(folder: Path) -> None:
    """Refuse a place where no folder can be.

    Raises:
        UserError: If it is one.
    """
    try:
        folder.resolve(strict=False)
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL
        raise UserError(f"{folder} is no place for a folder ({error}): give another --output") from error
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is there already, and is no adapter of `obliq train`: give another --output")


def check_free(output: Path, *, fresh: bool, digest: str = "") -> None:
    """Refuse a folder that holds something, unless it is a training's and may be replaced.

    Args:
        output: The folder.
        fresh: Whether a training's may be replaced.
        digest: Of the recipe, where it is known, so that the message can say whether an adapter there is another's.

    Raises:
        UserError: If it is one, or if somebody has put more into it.
    """
    if not output.exists() or not any(output.iterdir()):
        return
    own = files_of(output)
    if own is None:
        raise UserError(f"{output} is there already, and is no adapter of `obliq train`: give another --output")
    if not fresh:
        other = ", by another recipe" if digest and digest != digest_of(output) else ""
        raise UserError(f"{output} is trained already{other}: give another --output, or --fresh to begin again")
    found = {path.relative_to(output).as_posix() for path in output.rglob("*") if not path.is_dir()}
    if foreign := sorted(found - own):
        more = f" and {len(foreign) - SHOWN} more" if len(foreign) > SHOWN else ""
        raise UserError(
            f"{output} holds {', '.join(foreign[:SHOWN])}{more}, which `obliq train` did not write: move it away, or "
            "give another --output"
        )


def files_of(output: Path) -> set[str] | None:
    """Return the names of the files that a training has written into its folder, or None if it is no such folder."""
    told = _manifest(output).get("files")
    return {MANIFEST, *map(str, told)} if digest_of(output) and isinstance(told, list) else None


def digest_of(output: Path) -> str:
    """Return the digest of the recipe that a folder's training had; empty if it is no such folder."""
    return str(_manifest(output).get("digest") or "")


def _manifest(output: Path) -> dict[str, Any]:
    try:
        told = json.loads((output / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def written(output: Path, total: int) -> Trained:
    """Return what lies in a folder that has just been written."""
    manifest = json.loads((output / MANIFEST).read_text("utf-8"))
    return Trained(output, total, manifest["seconds"], manifest["loss"], output / CURVES, manifest)


def manifest_of(
    recipe: Recipe,
    data: Data,
    identity: Mapping[str, Any],
    texts: TrainingSet | Lists,
    found: list[curves.Point],
    total: int,
    args: SentenceTransformerTrainingArguments,
) -> dict[str, Any]:
    """Return the manifest."""
    scored = [point for point in found if point.dev]
    losses = [point.loss for point in found if point.loss is not None]
    return {
        "recipe": recipe.model_dump(mode="json"),
        "digest": recipe.digest,
        "base": identity["base"],
        "rows": {"sha256": identity["rows"], "edges": identity["edges"], "counts": dict(data.counts)},
        "texts": dict(texts.counts),
        "steps": total,
        "processes": args.world_size,
        "contrast": _contrasted(recipe, args.world_size),
        "accumulation": recipe.batch.accumulation,
        "seed": recipe.run.seed,
        "seconds": found[-1].seconds if found else 0.0,
        "loss": losses[-1] if losses else None,
        "dev": {str(point.step): dict(point.dev) for point in scored},
        "versions": versions() | _more_versions(),
        "hardware": hardware(),
        "created": now(),
    }


def _contrasted(recipe: Recipe, processes: int) -> int | None:
    """Return how many rows' documents an anchor is contrasted with; accumulation never adds to them."""
    if recipe.loss.kind == "margin-mse":
        return None
    return recipe.batch.per_device * (processes if recipe.loss.gather else 1)


def _more_versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("accelerate", "safetensors")}


@contextmanager
def saving(output: Path, then: str = ": it goes on from its last step") -> Iterator[None]:
    """Say in one sentence why a model could not be written: the libraries that do raise errors of their own kinds.

    Args:
        output: The model's folder.
        then: What the same command does, the sentence's end.

    Raises:
        UserError: If it could not.
    """
    try:
        yield
    except Exception as error:
        raise UserError(
            f"cannot write {output}: {checkpoints.why(error)}; free space, and give the same command again{then}"
        ) from error


def describe(part: Path, recipe: Recipe, found: list[curves.Point], facts: Mapping[str, Any], told: str) -> None:
    """Write into a model's folder how it was made: recipe, manifest, curves, and the card."""
    saved = {path.relative_to(part).as_posix() for path in part.rglob("*") if path.is_file()}
    facts = {**facts, "files": sorted(saved | {RECIPE, CURVES, PICTURE, CARD})}
    (part / RECIPE).write_text(recipe.to_toml(), "utf-8")
    (part / MANIFEST).write_text(json.dumps(facts, indent=2, ensure_ascii=False, default=str) + "\n", "utf-8")
    (part / CURVES).write_text("".join(point.to_json() + "\n" for point in found), "utf-8")
    curves.picture(found, part / PICTURE, recipe.name)
    (part / CARD).write_text(told, "utf-8")
