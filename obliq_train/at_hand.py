"""What of a recipe is at hand for a dry run: rows that can be read or built cheaply, and the base's tokenizer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from obliq_train.data import Data
    from obliq_train.recipe import Part, Recipe


@contextmanager
def promptly(recipe: Recipe, files: Mapping[str, Path]) -> Iterator[None]:
    """Look into the hub's cache alone, where the recipe needs the hub and that does not answer when it is asked once.

    Its client would try each file again and again, for minutes; a dry run says now what it knows.
    """
    from huggingface_hub import constants

    from obliq_eval import health

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or (_on_hub(recipe, files) and not health.hub_answers())
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _on_hub(recipe: Recipe, files: Mapping[str, Path]) -> bool:
    """Tell whether the base or documents of parts are the hub's."""
    from obliq_eval.data.official import OFFICIAL
    from obliq_eval.data.sources import MIRROR_PREFIX
    from obliq_models.repositories import local_base
    from obliq_train.build import PACKAGED

    corpora = [part.corpus for part in recipe.used if part.name not in files]
    base = recipe.model.base
    return (base not in PACKAGED and local_base(base) is None) or any(
        corpus in OFFICIAL or corpus.startswith(MIRROR_PREFIX) for corpus in corpora
    )


def rows(recipe: Recipe, work: Path, files: Mapping[str, Path]) -> tuple[Data | None, dict[str, str]]:
    """Return the rows of the parts that are at hand, and why the others are not.

    Args:
        recipe: The recipe.
        work: Where rows are built.
        files: `{part: file of rows}`, in the place of what the recipe says.

    Returns:
        The rows, None if there are none; and `{part: what is missing}`.

    Raises:
        UserError: If a file is given for no part of the recipe, is not there, or does not hold its rows.
    """
    from obliq_train.data import missing, prepare

    names = [part.name for part in recipe.part]
    if unknown := next((name for name in files if name not in names), None):
        raise UserError(f"--file {unknown}=…: {recipe.name} has no part of this name{near(unknown, names)}")
    absent: dict[str, str] = {}
    for part in recipe.used:
        alone, _, own = _only(recipe, work, files, (part,))
        if lacks := list(missing(alone, own)):
            if part.name in files:
                raise UserError(f"--file {part.name}=…: {'; '.join(lacks)}")
            absent[part.name] = "; ".join(lacks)
            continue
        if teacher := _neural(part, files):
            absent[part.name] = f"its rows are built by {teacher}, which a dry run does not start"
            continue
        try:
            prepare(alone, work, own)
        except UserError as error:
            if part.name in files:
                raise
            absent[part.name] = str(error).removeprefix(f"the rows of {recipe.name}: ")
    there = tuple(part for part in recipe.used if part.name not in absent)
    return prepare(*_only(recipe, work, files, there)) if there else None, absent


def _only(
    recipe: Recipe, work: Path, files: Mapping[str, Path], parts: tuple[Part, ...]
) -> tuple[Recipe, Path, dict[str, Path]]:
    names = {part.name for part in parts}
    own = {name: file for name, file in files.items() if name in names}
    return recipe.model_copy(update={"part": parts}), work, own


def _neural(part: Part, files: Mapping[str, Path]) -> str:
    """Return the teacher of a part whose rows cannot be built without running a network; empty for other parts."""
    if part.name in files or part.file or not part.teacher:
        return ""
    from obliq_models.naming import origins

    return "" if all(entry.n_parameters == 0 for entry in origins(part.teacher)) else part.teacher


def tokenizer(recipe: Recipe) -> Any:
    """Return the tokenizer of a recipe's base.

    Raises:
        MissingExtraError: If the base is packaged, and its package is not installed.
        UserError: If it cannot be had.
    """
    from huggingface_hub import constants
    from transformers import AutoTokenizer

    from obliq_train.build import origin

    files = origin(recipe).files
    library: Any = AutoTokenizer
    try:
        return library.from_pretrained(files.place, use_fast=True, **files.given)
    except (OSError, ValueError) as error:
        why = ", and the hub is not asked" if constants.is_offline_mode() else ""
        raise UserError(f"model.base {recipe.model.base}: no tokenizer can be loaded from {files}{why}") from error
