"""How a finished model reads texts, and how it is named after `-m`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import resolve
from obliq_train.build import DTYPES, PACKAGED
from obliq_train.recipe_files import toml_of

if TYPE_CHECKING:
    from pathlib import Path

    from obliq_train.recipe import Recipe


LONGEST = 80
"""Bytes of a model's name, without its organisation."""


def reading(recipe: Recipe) -> dict[str, Any]:
    """Return how the finished model reads texts, by the names that the table of models has for it."""
    own = recipe.model
    return {
        "query_prefix": own.query_prefix,
        "document_prefix": own.document_prefix,
        "query_length": own.encode_query_length,
        "document_length": own.encode_document_length,
        "pooling": own.pooling,
        "normalize": own.normalize,
        "trust_remote_code": own.trust_remote_code,
        "dtype": DTYPES[recipe.run.precision],
        **({} if own.bidirectional else {"causal": True}),
    }


def plain_name(text: str) -> str:
    """Return a folder's name as a model may be called: without blanks and what has a meaning after `-m`."""
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^\w.-]+", "-", text)).strip("-_.").removesuffix(".toml")
    return plain.encode()[:LONGEST].decode(errors="ignore") or "adapter"


def named(recipe: Recipe, output: Path) -> tuple[str, str]:
    """Return what stands after `-m` for a recipe's model, and the content of the file that this names.

    A model of the table reads texts with its own prefixes and lengths, so that `NAME@OUTPUT` serves where these are
    the recipe's, and no file is needed; else `OUTPUT.toml` has to say what they are.

    Args:
        recipe: The recipe.
        output: The model's folder.

    Returns:
        The text, and the file's content; empty if no file is needed.
    """
    if recipe.trains == "reranker":
        return f"bm25+{output}", ""
    entry, wanted = resolve("minilm" if recipe.model.base in PACKAGED else "obliq-ir"), reading(recipe)
    plain = {"dtype": "float32", "pooling": "mean", "normalize": True, "trust_remote_code": False, **entry.settings}
    if wanted == {key: getattr(entry, key, None) or plain.get(key, "") for key in wanted}:
        return f"{entry.alias}@{output}", ""
    first = {"name": plain_name(output.name), "path": output.name, "model": entry.alias}
    told = {**first, **wanted, "licence": recipe.licence}
    return f"{output}.toml", toml_of(told)
