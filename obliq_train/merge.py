"""An adapter folded into the weights that it adapts: W + alpha / r · B·A, one model that needs no PEFT."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_eval.home import whole_folder
from obliq_train import build as building
from obliq_train import card, outputs, probe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sentence_transformers import SentenceTransformer

    from obliq_models.repositories import Repository
    from obliq_models.retrievers.obliq_ir import ObliqIR

DTYPES = ("float32", "bfloat16", "float16")
CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
base_model: {base}
base_model_relation: merge
{terms}tags: [sentence-transformers, obliq]
---

# {name}

The adapter {adapter} folded into {base}, {layers} linear layers, and written in {dtype}.

- Licence of the adapter: {licence}
- Terms of the base, which hold as well: {base_licence}
- {prefixes}, as `config_sentence_transformers.json` says.
- A query is read up to {query_length} tokens, a document up to {document_length}.

What folding changed, on {probe}, against the adapter on its base in {own}: the cosine between a text's vectors before
and after is {least:.6f} at least and {mean:.6f} on average ({texts} texts); the first document is the same for {first}
of {queries} queries; of the first ten documents a share of {overlap:.4f} is the same on average.

## Risk

{risk}
"""


@dataclass(frozen=True)
class Merged:
    """What was written.

    Args:
        folder: The folder.
        adapter: What was folded.
        base: What it was folded into.
        dtype: Of the written weights.
        own: Of the weights that it is compared with: the adapter on its base.
        layers: Layers that were changed.
        change: How far vectors and rankings moved.
    """

    folder: Path
    adapter: str
    base: str
    dtype: str
    own: str
    layers: int
    change: probe.Change


def merge(
    adapter: str | Path,
    output: Path,
    dtype: str | None = None,
    on: str = probe.DEFAULT,
    *,
    base: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> Merged:
    """Fold an adapter into its base, write the whole model, load it again, and compare the two.

    Each layer is folded in float32 and rounded once. The adapter is compared as `-m` uses it, in its base's own type.

    Args:
        adapter: An adapter's folder; or a model of the table, `NAME@FOLDER` or `FILE.toml`, as after `-m`.
        output: The folder that is written, whole or not at all.
        dtype: Of the written weights; by default the base's own.
        on: What both are compared on; see `probe.read`.
        base: Where the base is, if not where the adapter says.
        device: Where to compute.
        trust_remote_code: Run the code that the base brings, whoever wrote it.

    Raises:
        MissingExtraError: If peft is not installed.
        UserError: If there is no adapter, it is broken or of another base, or `output` is there already.
    """
    from obliq_models.retrievers.checks import one_way
    from obliq_train.watch import quiet

    check_dtype(dtype)
    check_output(output, Path(adapter))
    texts = probe.read(on)
    with whole_folder(output) as part, quiet():
        model = _loaded(str(adapter), base=base, device=device, trust=trust_remote_code)
        encoder, (source, weights) = model.encoder, model.sources
        _warn_of_another_base(source, weights)
        own = str(encoder.model.dtype).removeprefix("torch.")
        causal = bool(one_way(encoder.model))  # then it was meant to be
        show.say(f"encoding {len(texts.documents) + len(texts.queries):,} texts twice", stderr=True)
        before = probe.encode(encoder, texts)
        layers = fold(encoder.model, dtype or own)
        reading = {
            "query_prefix": encoder.prompt("query"),
            "document_prefix": encoder.prompt("document"),
            "query_length": encoder.length("query"),
            "document_length": encoder.length("document"),
        }
        with outputs.saving(output, ""):
            _write(encoder.model, part, reading, config_of(weights.record("config.json"), weights, dtype or own))
        after = _again(part, dtype or own, {**reading, "causal": causal}, encoder.model, device)
        change = probe.compare(texts, before, probe.encode(after.encoder, texts))
        done = Merged(output, _shown(source), _base_shown(source, weights), dtype or own, own, layers, change)
        _describe(part, done, reading, _terms(source, weights), _risk(source))
    return done


def check_dtype(dtype: str | None) -> None:
    """Refuse a type in which weights are not written.

    Raises:
        UserError: If it is none.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"--dtype is {dtype!r}, not one of {', '.join(DTYPES)}{near(dtype, DTYPES)}")


def check_output(output: Path, *inputs: Path) -> None:
    """Refuse a folder that is there already, or that lies inside what is read.

    Raises:
        UserError: If it is one of these.
    """
    if output.exists() or output.is_symlink():
        raise UserError(f"{output} is there already, and nothing is written over it: give -o a new folder")
    for folder in inputs:
        if folder.is_dir() and folder.resolve() in output.resolve().parents:
            raise UserError(f"{output} is inside {folder}, which is read: give -o a folder elsewhere")


def fold(model: SentenceTransformer, dtype: str) -> int:
    """Put W + alpha / r · B·A in the place of every adapted layer, and return how many there were.

    One layer at a time is computed in float32, so that the sum is rounded once.

    Args:
        model: A model with a LoRA adapter; it is changed.
        dtype: Of all weights afterwards.
    """
    import torch
    from peft.tuners.lora import LoraLayer

    target = getattr(torch, dtype)
    transformer: Any = model[0]
    network = transformer.model
    adapted: list[tuple[str, Any]] = [
        (name, module) for name, module in network.named_modules() if isinstance(module, LoraLayer)
    ]
    for name, layer in adapted:
        layer.float()
        layer.merge(safe_merge=True)
        parent, _, attribute = name.rpartition(".")
        setattr(network.get_submodule(parent), attribute, layer.get_base_layer().to(target))
    del network.peft_config
    network._hf_peft_config_loaded = False  # transformers asks for both when it saves, the second one
    network._weight_conversions = None  # being how the adapter's names differ from the base's
    model.to(target)
    return len(adapted)


def _loaded(adapter: str, *, base: str | None, device: str | None, trust: bool) -> ObliqIR:
    """Return the model with its adapter, checked as for `-m`."""
    from obliq_models.derived import MINI, OBLIQ_IR, fingerprint
    from obliq_models.repositories import settle
    from obliq_models.retrievers import adapters, obliq_ir
    from obliq_models.retrievers.obliq_ir import ObliqIR

    folder = Path(adapter)
    if folder.is_dir():
        source = settle(adapter, path=adapter)
        if not source.has("adapter_config.json"):
            raise UserError(f"{adapter} holds no adapter (adapter_config.json): name the folder that was trained")
        _check_whole_modules(source)
        parts = adapters.find_parts(adapter, source, base, None)
        settings = {**_reading(source), "dtype": _own_dtype(parts.weights), "trust_remote_code": trust}
        settings["causal"] = _causal(source)
        return obliq_ir.load(adapter, fingerprint(folder), path=adapter, base=base, device=device, **settings)
    from obliq_models.loading import load
    from obliq_models.naming import find

    if "@" not in adapter and not adapter.endswith(".toml") and ("/" in adapter or folder.exists()):
        raise UserError(f"there is no folder {adapter}")
    entry = find(adapter)
    if base is not None:
        raise UserError("--base is for an adapter's folder: a model of the table names its own")
    model = load(entry, device) if entry.loader in {OBLIQ_IR, MINI} else None
    if not isinstance(model, ObliqIR) or len(model.sources) != 2:
        raise UserError(f"{adapter} is no adapter, so there is nothing to fold: name the folder that was trained")
    _check_whole_modules(model.sources[0])
    return model


def _warn_of_another_base(source: Repository, weights: Repository) -> None:
    """Say where a base in a folder has other files than when the adapter was trained."""
    from obliq_models.derived import fingerprint

    told = str(source.record("training.json").get("base") or "")
    if weights.commit or building.FILES not in told:
        return
    if f"{building.FILES}{fingerprint(Path(weights.place))}" not in told:
        show.warn(
            f"{weights} has other files than when {source} was trained on it: if its weights are others, so are the "
            "vectors"
        )


def _check_whole_modules(source: Repository) -> None:
    if whole := source.record("adapter_config.json").get("modules_to_save"):
        raise UserError(f"{source} replaces whole modules ({', '.join(whole)}), which cannot be folded")


def _own_dtype(weights: Repository) -> str:
    config = weights.record("config.json")
    told = str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
    return told if told in DTYPES else "float32"


def _reading(source: Repository) -> dict[str, Any]:
    """Return how an adapter's folder says that texts are read; what it does not say is as published."""
    prompts = source.record("config_sentence_transformers.json").get("prompts") or {}
    lengths = source.record("sentence_bert_config.json")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"config_sentence_transformers.json of {source}: prompts are no texts by name")
    for key in ("query_length", "document_length"):
        if (length := lengths.get(key)) is not None and (type(length) is not int or length < 1):
            raise UserError(f"sentence_bert_config.json of {source}: {key} is {length!r}, and no number of tokens")
    found: dict[str, Any] = {
        "query_prefix": prompts.get("query") or "",
        "document_prefix": next((prompts[key] for key in ("document", "passage") if prompts.get(key)), ""),
        "query_length": lengths.get("query_length"),
        "document_length": lengths.get("document_length"),
    }
    modules = source.json("modules.json")
    if isinstance(modules, list):
        kinds = {str(module.get("type", "")).rpartition(".")[2]: module for module in modules}
        pooling = kinds.get("Pooling", {}).get("path", "")
        mode = source.record(f"{pooling}/config.json").get("pooling_mode") if pooling else None
        found |= {"normalize": "Normalize" in kinds} | ({"pooling": mode} if isinstance(mode, str) else {})
    return found


def _causal(source: Repository) -> bool:
    """Return whether the adapter's recipe says that its base's attention may be causal."""
    recipe = source.record("training.json").get("recipe")
    model = recipe.get("model") if isinstance(recipe, dict) else None
    return isinstance(model, dict) and model.get("bidirectional") is False


def config_of(record: Mapping[str, Any], weights: Repository, dtype: str) -> dict[str, Any]:
    """Return the configuration of a merged model: its base's, in another type.

    Code of a base on the hub is named with its repository, so that whoever trusts that one need not trust a folder.

    Args:
        record: The base's `config.json`.
        weights: Where the base is.
        dtype: Of the written weights.
    """
    found = {key: value for key, value in record.items() if key != "torch_dtype"} | {"dtype": dtype}
    named = record.get("auto_map")
    if weights.commit and isinstance(named, dict):
        found["auto_map"] = {
            key: f"{weights.place}--{value}" if isinstance(value, str) and "--" not in value else value
            for key, value in named.items()
        }
    return found


def _write(model: SentenceTransformer, folder: Path, reading: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Write a whole model that reads texts as the adapter did.

    Args:
        model: The model, its adapter folded.
        folder: An existing folder.
        reading: Prefixes and lengths.
        config: What `config.json` is to hold. What transformers would write has lost the type of a base that brings
            its own code, and it refuses keys, such as a temperature, that it takes for generation's.
    """
    model.prompts = {"query": reading["query_prefix"], "document": reading["document_prefix"]}
    transformer: Any = model[0]
    transformer.query_length, transformer.document_length = reading["query_length"], reading["document_length"]
    if reading["document_length"] is not None:
        model.max_seq_length = reading["document_length"]
    with patch.object(type(transformer.model.config), "_get_generation_parameters", lambda _: {}):
        model.save_pretrained(str(folder), create_model_card=False)
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _again(
    folder: Path, dtype: str, reading: Mapping[str, Any], model: SentenceTransformer, device: str | None
) -> ObliqIR:
    """Load what was written, with all checks of a published model; whatever code it brings has just been run."""
    from obliq_models.retrievers import obliq_ir

    modules: dict[str, Any] = {type(module).__name__: module for module in model}
    return obliq_ir.load(
        "the merged model",
        "merged",
        path=str(folder),
        device=device,
        dtype=dtype,
        pooling=modules["Pooling"].pooling_mode,
        normalize="Normalize" in modules,
        trust_remote_code=True,
        **reading,
    )


def _describe(folder: Path, done: Merged, reading: Mapping[str, Any], terms: tuple[str, str], risk: str) -> None:
    """Write the model card."""
    licence, base_licence = terms
    front = card.front_terms(licence)
    text = CARD.format(
        **{**vars(done), **vars(done.change), **reading},
        name=done.folder.name,
        prefixes=card.prefixes(reading["query_prefix"], reading["document_prefix"]),
        terms="".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in front.items()),
        risk=risk,
        licence=licence or "not stated; ask whoever trained it",
        base_licence=base_licence or "as its own card says",
    )
    (folder / "README.md").write_text(text, "utf-8")


def _shown(source: Repository) -> str:
    """Return what a card calls files: a repository with its commit, or a folder's name, wherever it lies."""
    return str(source) if source.commit else Path(source.place).resolve().name


def _base_shown(source: Repository, weights: Repository) -> str:
    told = str(source.record("adapter_config.json").get("base_model_name_or_path") or "")
    if weights.commit:
        return str(weights)
    if "minilm_l6_v2" in weights.place:
        return building.MINILM
    return told if told.count("/") == 1 and not told.startswith((".", "/")) else _shown(weights)


def _terms(source: Repository, weights: Repository) -> tuple[str, str]:
    """Return the licences of an adapter and of its base, as the table of models, or else their cards, state them."""
    from obliq_eval.catalogue import catalogue

    own = next((entry.licence for entry in catalogue().values() if entry.name == source.place), "") or _licence(source)
    named = str(source.record("adapter_config.json").get("base_model_name_or_path") or "")
    return own, card.base_terms(weights.place, named, _base_shown(source, weights)) or _licence(weights)


def _risk(source: Repository) -> str:
    """Return the risk that an adapter's recipe states, or else the table of models, or else what holds for any."""
    from obliq_eval.catalogue import catalogue

    recipe = source.record("training.json").get("recipe")
    told = recipe.get("risk") if isinstance(recipe, dict) else None
    entry = next((entry.risk for entry in catalogue().values() if entry.name == source.place), "")
    return (told if isinstance(told, str) else "") or entry or card.RISK


def _licence(source: Repository) -> str:
    """Return what the head of a card says; nothing where there is none, or one that cannot be read."""
    from huggingface_hub import ModelCard

    path = source.file("README.md")
    try:
        told = ModelCard.load(path).data if path is not None else None
        return str((told.license_name if told.license == "other" else told.license) or "") if told else ""
    except (OSError, ValueError):
        return ""
