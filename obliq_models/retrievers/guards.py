"""What must hold before a checkpoint is used: every weight there and finite, and a tokenizer of its own."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from obliq_eval.errors import SHOWN, UserError, raise_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    Model = TypeVar("Model", bound=nn.Module)

_POOLER = re.compile(r"(^|\.)pooler\.")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")

logger = logging.getLogger(__name__)


def checked(name: str, source: str, build: Callable[[], Model]) -> Model:
    """Load a model and make sure that it is what its files say.

    transformers itself fills weights that a checkpoint lacks with random ones, and makes up a tokenizer where there
    is none. A missing pooler is let pass: embeddings are not read from it. Weights that have no place in the model
    are counted and logged.

    Args:
        name: What the model is called, for messages.
        source: Folder or name on the hub that it is loaded from.
        build: Loads the model.

    Raises:
        UserError: If it cannot be loaded; if weights are missing, have another shape than the model needs, or are
            not finite; if it has no tokenizer, or one without words. All problems at once.
    """
    with explained(f"{name}: cannot load a model from {source}"), _reports() as reports:
        model = build()
    problems = [problem for report in reports for problem in _misfits(report)]
    broken = [key for key, weight in model.named_parameters() if not _finite(weight)]
    if broken:
        problems.append(f"NaN or infinity is in {_listed(broken)}")
    problems += tokenizer_problems(getattr(model, "tokenizer", None), source)
    raise_all(problems, f"{name}: {source} is not a complete model")
    left = sorted(key for report in reports for key in report.unexpected_keys)
    if left:
        logger.warning("%s: left out, because the model has no place for it: %s", name, _listed(left))
    return model


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn whatever a checkpoint's files raise into one sentence.

    What a damaged file raises depends on the file: errors of the system, of JSON, of safetensors, of the unpickler.

    Args:
        what: What could not be done, with the model and the folder.

    Raises:
        UserError: If anything is raised inside.
    """
    try:
        yield
    except Exception as error:
        told = shorten(str(error), 300, placeholder=" …") or type(error).__name__
        raise UserError(f"{what}: {told}") from error


def tokenizer_problems(tokenizer: Any, source: str) -> list[str]:
    """Return what is wrong with a loaded tokenizer, one sentence each.

    Args:
        tokenizer: A tokenizer of transformers; anything else is let pass.
        source: Where it was loaded from; its files are looked for if this is a folder.
    """
    if not hasattr(tokenizer, "vocab_files_names"):
        return []
    names = list(dict.fromkeys((*tokenizer.vocab_files_names.values(), *_TOKENIZER_FILES)))
    if not tokenizer.vocab_files_names:  # it reads bytes or characters
        names = ["tokenizer_config.json"]
    folder = Path(source)
    if folder.is_dir() and not any(file.name in names for file in folder.rglob("*")):
        return [f"it has no tokenizer ({' or '.join(names)}); save the one that it was trained with beside it"]
    words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    if len(words) < 2:  # the one that transformers makes up for T5 holds the mark of a blank
        return ["its tokenizer knows no words, only special tokens; save the one that it was trained with beside it"]
    return []


@contextmanager
def _reports() -> Iterator[list[Any]]:
    """Collect the loading report of everything that transformers loads inside, adapters and what they adapt included.

    transformers returns its report to the direct caller only, and not that of an adapter's base. Every report is
    printed as a table, or raised where shapes differ; here it is kept instead.
    """
    from transformers.utils.loading_report import LoadStateDictInfo

    reports: list[Any] = []

    def keep(report: LoadStateDictInfo, *_: object, **__: object) -> None:
        reports.append(report)

    with patch.object(LoadStateDictInfo, "create_loading_report", keep):
        yield reports


def _misfits(report: Any) -> Iterator[str]:
    missing = sorted(key for key in report.missing_keys if not _POOLER.search(key))
    if missing:
        yield f"the files lack {_listed(missing)}"
        if report.unexpected_keys:
            yield f"the files hold what the architecture does not: {_listed(sorted(report.unexpected_keys))}"
    if report.mismatched_keys:
        shapes = sorted((key, list(found), list(needed)) for key, found, needed in report.mismatched_keys)
        wrong = [f"{key} is {found}, not {needed}" for key, found, needed in shapes]
        yield f"of another shape than the configuration says: {_listed(wrong)}"
    if report.conversion_errors:
        yield f"transformers cannot convert {_listed(sorted(report.conversion_errors))}"


def _finite(weight: nn.Parameter) -> bool:
    return not weight.is_floating_point() or bool(weight.isfinite().all())


def _listed(entries: Sequence[str]) -> str:
    """Return how many weights these are and, if they are not too many, which."""
    more = [f"… and {len(entries) - SHOWN} more"] if len(entries) > SHOWN else []
    return f"{len(entries)} weight{'s'[: len(entries) != 1]} ({', '.join([*entries[:SHOWN], *more])})"
