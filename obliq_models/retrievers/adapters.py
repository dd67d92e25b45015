"""An adapter with its base, or a whole model, out of two repositories: which they are, what may run, how they load."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from obliq_eval.errors import MissingExtraError, UserError, raise_all
from obliq_models.pins import PINS
from obliq_models.repositories import Repository, local_base, settle
from obliq_models.retrievers.guards import pickle_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sentence_transformers import SentenceTransformer

BASE = "nvidia/llama-nv-embed-reasoning-3b"
MINILM = "obliq/all-MiniLM-L6-v2"
"""Stands for the folder of the installed package, wherever that is."""

_TRUSTED = frozenset({BASE, "DataScience-UIBK/OBLIQ-IR-3B"})
"""Repositories whose own code runs without being asked for: those of the zoo's entries."""
_MAY_NAME_CODE = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_MINILM_NAMES = frozenset({MINILM, "sentence-transformers/all-MiniLM-L6-v2"})

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Where everything comes from.

    Args:
        weights: The whole model, or the base of the adapter.
        adapter: The adapter, or None.
        config: Content of its `adapter_config.json`.
        words: Where the tokenizer is.
    """

    weights: Repository
    adapter: Repository | None
    config: Mapping[str, Any]
    words: Repository


def find_parts(name: str, source: Repository, base: str | None, base_revision: str | None) -> Parts:
    """Return where everything of a model comes from.

    Args:
        name: The model, for messages.
        source: An adapter's repository or folder, or a whole model's.
        base: What the adapter adapts; by default what its configuration says.
        base_revision: Commit of the base; by default the pinned one where there is one, else the newest.

    Raises:
        MissingExtraError: If there is an adapter, and peft is not installed.
        UserError: If the adapter is of another kind than LoRA, or its base is another one or not there.
    """
    config = source.record("adapter_config.json")
    if not config:
        return Parts(source, None, {}, source)
    try:
        import peft  # noqa: F401 -- transformers would name another way to install it
    except ImportError as error:
        raise MissingExtraError("peft", "obliq-ir", f"{name}, which is an adapter,") from error
    if config.get("peft_type") != "LORA":
        raise UserError(f"{name}: the adapter in {source} is {config.get('peft_type')}; only LORA can be loaded here")
    raise_all(list(_odd_settings(config)), f"{name}: adapter_config.json of {source}")
    found = _base(name, source, str(config.get("base_model_name_or_path") or ""), base)
    weights = settle(found, base_revision or PINS.get(found))
    own = source.has("tokenizer.json") or source.has("tokenizer_config.json")
    return Parts(weights, source, config, source if own else weights)


def _odd_settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an adapter's configuration leaves open or says wrongly; peft would put values of its own there."""
    for key in ("r", "lora_alpha"):
        value = config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            found = "is missing" if key not in config else f"is {value!r}"
            yield f"{key} {found}, which has to be a number above 0"
    targets = config.get("target_modules")
    if targets is not None and not (
        isinstance(targets, str) or (isinstance(targets, list) and all(isinstance(one, str) for one in targets))
    ):
        yield f"target_modules is {targets!r}, which has to be a list of names or an expression"


def _base(name: str, adapter: Repository, told: str, base: str | None) -> str:
    """Return the folder or the repository of an adapter's base.

    Args:
        name: The model, for messages.
        adapter: Where the adapter is.
        told: What its configuration says.
        base: What the table of models, or the user, says.
    """
    folder = Path(adapter.place) if adapter.commit is None else None
    if base == MINILM or (base is None and told in _MINILM_NAMES):
        if _HUB_NAME.fullmatch(told) and told not in _MINILM_NAMES:
            raise _other_base(name, told, MINILM)
        from obliq_models.retrievers import minilm

        return str(minilm.folder(name))
    if base is None:
        if not told:
            raise UserError(f"{name}: adapter_config.json of {adapter} names no base; say which in a model file: base")
        if place := local_base(told, folder):
            return str(place)
        if _HUB_NAME.fullmatch(told):
            return told
        raise UserError(
            f"{name}: the base of the adapter, {told}, is not there; say where it is in a model file: "
            'base = "FOLDER or name on the hub"'
        )
    if told and told != base:
        if _HUB_NAME.fullmatch(told) and _HUB_NAME.fullmatch(base) and local_base(base) is None:
            raise _other_base(name, told, base)
        logger.warning("%s: the adapter was trained on %s, and %s is loaded in its place", name, told, base)
    return str(local_base(base) or base)


def _other_base(name: str, told: str, base: str) -> UserError:
    return UserError(f"{name}: the adapter was trained on {told}, and {base} was to be loaded as its base")


def check_files(name: str, parts: Parts, pooling: str, *, allow_pickle: bool) -> None:
    """Refuse weights that could run code when they are read, and folders that say another way to pool.

    Raises:
        UserError: If there are such.
    """
    problems = list(_other_pooling(parts.adapter or parts.weights, pooling))
    if not allow_pickle:
        problems += pickle_problems(parts.weights)
        problems += [] if parts.adapter is None else pickle_problems(parts.adapter, adapter=True)
    raise_all(problems, name)


def _other_pooling(source: Repository, pooling: str) -> Iterator[str]:
    modules = source.json("modules.json")
    if modules is None:
        return
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        yield f"modules.json of {source} is no list of modules"
        return
    for module in modules:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            config = source.record(f"{module.get('path', '')}/config.json".lstrip("/"))
            old = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
            modes = config.get("pooling_mode") or [_pooling_name(key) for key in old]
            if modes not in (pooling, [pooling]):
                shown = " and ".join(map(str, modes)) if isinstance(modes, list) else str(modes)
                told = f"{source} pools by {shown or 'nothing'}, and this loader by {pooling}"
                yield f"{told}; say which in a model file: pooling"
        elif kind not in {"Transformer", "Normalize"}:
            yield f"{source} has a module {kind} after its transformer, which this loader would leave out"


def _pooling_name(key: str) -> str:
    return (
        key.removeprefix("pooling_mode_")
        .removesuffix("_tokens")
        .removesuffix("_token")
        .replace("mean_sqrt_len", "mean_sqrt_len_tokens")
    )


def code(name: str, source: Repository, *, trust: bool) -> dict[str, Any]:
    """Return the arguments that let code run which a model or its tokenizer brings, or keep it from running.

    Whoever trusts one file trusts all of them, so every file that can name code is looked into.

    Args:
        name: The model, for messages.
        source: Where the model, or its tokenizer alone, is.
        trust: Whether the user vouches for whatever there is.

    Raises:
        UserError: If the model cannot be built without code that nobody has vouched for.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    owners = {owner for file in _MAY_NAME_CODE for owner in _owners(source, file)}
    if not owners or not (trust or owners <= _TRUSTED):
        if owners and source.record("config.json").get("model_type") not in CONFIG_MAPPING:
            raise UserError(
                f"{name}: {source} needs code from {', '.join(sorted(owners))}, which is not run unless you say so: "
                "read it, then put trust_remote_code = true into a model file"
            )
        return {"trust_remote_code": False}
    given: dict[str, Any] = {"trust_remote_code": True}
    foreign = owners - {source.place}
    if len(foreign) == 1 and (owner := foreign.pop()):
        given["code_revision"] = settle(owner, PINS.get(owner)).commit
    return given


def _owners(source: Repository, file: str) -> Iterator[str]:
    """Yield the repositories whose code one file of a model names."""
    written = source.record(file).get("auto_map") or {}
    if not isinstance(written, dict):
        raise UserError(f"cannot read {file} of {source}: its auto_map is no object")
    for told in written.values():
        for reference in told if isinstance(told, list) else [told]:  # a tokenizer's are two, slow and fast
            owner, dashes, _ = str(reference or "").partition("--")
            if reference:
                yield owner if dashes else source.place


def build(
    parts: Parts,
    code: Mapping[str, Any],
    dtype: str,
    pooling: str,
    device: str | None,
    *,
    words_code: bool,
    normalize: bool,
    allow_pickle: bool,
) -> SentenceTransformer:
    """Load the parts: transformer, adapter, pooling, and, if vectors are to have unit length, what does that.

    Args:
        parts: Where they come from.
        code: What `code` returned for the weights.
        dtype: Of all weights.
        pooling: How token states become one vector.
        device: Where to run.
        words_code: Whether the tokenizer's code may run.
        normalize: Bring vectors to unit length.
        allow_pickle: Read weights in pickle's form.
    """
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    from transformers import AutoTokenizer

    given = {**parts.weights.given, **code}
    safe = {} if allow_pickle else {"use_safetensors": True}
    words = {"trust_remote_code": words_code}
    transformer = Transformer(
        parts.weights.place,
        model_kwargs={**given, **safe, "dtype": getattr(torch, dtype)},
        config_kwargs=dict(given),
        processor_kwargs={**words, **parts.weights.given},
    )
    if parts.words != parts.weights:
        tokenizer = AutoTokenizer.from_pretrained(parts.words.place, **words, **parts.words.given)
        most = getattr(transformer.model.config, "max_position_embeddings", tokenizer.model_max_length)
        tokenizer.model_max_length = min(tokenizer.model_max_length, most)  # as Transformer itself does
        transformer.processor = tokenizer
    if parts.adapter is not None:
        pickled = allow_pickle and not parts.adapter.has("adapter_model.safetensors")
        transformer.model.load_adapter(
            parts.adapter.place,
            adapter_kwargs=dict(parts.adapter.given),
            **({"use_safetensors": False} if pickled else {}),
        )
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)]
    return SentenceTransformer(modules=[*modules, *([Normalize()] if normalize else [])], device=device)
