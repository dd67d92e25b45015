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
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import nn

    from obliq_models.repositories import Repository

    Model = TypeVar("Model", bound=nn.Module)

_POOLER = re.compile(r"(^|\.)pooler\.")
_ADAPTER = re.compile(r"(^|\.)lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.|$)")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")

logger = logging.getLogger(__name__)


def checked(
    name: str,
    source: str,
    build: Callable[[], Model],
    more: Callable[[Model], Iterable[str]] | None = None,
    words: str | None = None,
    weights: Callable[[Model], Iterable[str]] | None = None,
) -> Model:
    """Load a model and make sure that it is what its files say.

    transformers itself fills weights that a checkpoint lacks with random ones, and makes up a tokenizer where there
    is none. A missing pooler is let pass: embeddings are not read from it. Weights that have no place in the model
    are counted and logged.

    Args:
        name: What the model is called, for messages.
        source: Folder or name on the hub that it is loaded from.
        build: Loads the model.
        more: Returns what else is wrong with it, one sentence each.
        words: Where its tokenizer is, if elsewhere.
        weights: Returns what else is wrong with its weights; not asked where some are missing or misfit, since it
            would tell of consequences.

    Raises:
        UserError: If it cannot be loaded; if weights are missing, have another shape than the model needs, or are
            not finite; if an adapter's weights have no place in the model; if it has no tokenizer, or one without
            words. All problems at once.
    """
    with explained(f"{name}: cannot load a model from {source}"), _reports() as reports:
        model = build()
    problems = [problem for report in reports for problem in _misfits(report)]
    broken = [key for key, weight in model.named_parameters() if not _finite(weight)]
    if broken:
        problems.append(f"NaN or infinity is in {listed(broken)}")
    problems += tokenizer_problems(getattr(model, "tokenizer", None), words or source)
    asked = [weights if not any(map(_unfilled, reports)) else None, more]
    with explained(f"{name}: {source} cannot be tried out"):
        for ask in filter(None, asked):
            problems += ask(model)
    raise_all(problems, f"{name}: {source} is not a complete model")
    left = sorted(key for report in reports for key in report.unexpected_keys)
    if left:
        logger.warning("%s: left out, because the model has no place for it: %s", name, listed(left))
    return model


def pickle_problems(source: Repository, *, adapter: bool = False) -> list[str]:
    """Return what is wrong with a repository that holds its weights in no other form than one that can run code.

    Args:
        source: The repository; nothing of it is fetched.
        adapter: Whether it holds an adapter, whose file has another name, and which is no adapter without it.
    """
    safe, old = ("adapter_model", "adapter_model.bin") if adapter else ("model", "pytorch_model.bin")
    if any(source.has(f"{safe}.safetensors{index}") for index in ("", ".index.json")):
        return []
    pickled = next((file for file in (old, f"{old}.index.json") if source.has(file)), None)
    if pickled is not None:
        return [
            f"{source} holds its weights only as {pickled}, which can run code when it is read; convert them to "
            "safetensors, or say allow_pickle = true in a model file"
        ]
    return [f"{source} holds no {safe}.safetensors"] if adapter else []


def pad_token_problems(tokenizer: Any) -> list[str]:
    """Return what is wrong with a tokenizer of transformers that has no padding token; any other is let pass."""
    if not hasattr(tokenizer, "vocab_files_names") or tokenizer.pad_token is not None:
        return []
    return [
        "its tokenizer has no padding token, so that texts of unlike length cannot be encoded together; name one as "
        "pad_token in tokenizer_config.json"
    ]


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


def _missing(report: Any) -> list[str]:
    return sorted(key for key in report.missing_keys if not _POOLER.search(key))


def _unfilled(report: Any) -> bool:
    return bool(_missing(report) or report.mismatched_keys or report.conversion_errors)


def _misfits(report: Any) -> Iterator[str]:
    missing = _missing(report)
    placeless = sorted(report.unexpected_keys)
    if missing:
        yield f"the files lack {listed(missing)}"
    if placeless and (missing or any(map(_ADAPTER.search, placeless))):
        yield f"the files hold what the architecture does not: {listed(placeless)}"
    if report.mismatched_keys:
        shapes = sorted((key, list(found), list(needed)) for key, found, needed in report.mismatched_keys)
        wrong = [f"{key} is {found}, not {needed}" for key, found, needed in shapes]
        yield f"{_why_misfit(shapes)}: {listed(wrong)}"
    if report.conversion_errors:
        yield f"transformers cannot convert {listed(sorted(report.conversion_errors))}"


def _why_misfit(shapes: Sequence[tuple[str, list[int], list[int]]]) -> str:
    """Return why weights have another shape than the model needs: the rank is A's rows and B's columns."""
    if not any(_ADAPTER.search(key) for key, _, _ in shapes):
        return "of another shape than the configuration says"
    wide = [slice(1, None) if ".lora_A." in key else slice(0, 1) for key, _, _ in shapes]
    if all(found[part] == needed[part] for part, (_, found, needed) in zip(wide, shapes, strict=True)):
        return "the adapter's configuration says another rank (r) than its weights have"
    return "the adapter was trained on another base"


def _finite(weight: nn.Parameter) -> bool:
    return not weight.is_floating_point() or bool(weight.isfinite().all())


def listed(entries: Sequence[str], what: str = "weight") -> str:
    """Return how many things these are and, if they are not too many, which."""
    more = [f"… and {len(entries) - SHOWN} more"] if len(entries) > SHOWN else []
    return f"{len(entries)} {what}{'s'[: len(entries) != 1]} ({', '.join([*entries[:SHOWN], *more])})"
