"""The model that is trained: a base whose weights rest, a LoRA adapter, explicit pooling; and the adapter's files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import MissingExtraError, UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from sentence_transformers import SentenceTransformer

    from obliq_models.repositories import Repository
    from obliq_train.recipe import Recipe

    State = Mapping[str, torch.Tensor]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
"""What an adapter of the packaged weights names as its base: a name that loads elsewhere, which a path would not."""
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PACKAGED = frozenset({"obliq/all-MiniLM-L6-v2", MINILM})
FILES = "SHA-256 of its files "
"""Before the hash by which a base in a folder is known."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "bf16-autocast": "float32"}
"""Type of all weights, the adapter's included, by the recipe's precision."""


@dataclass(frozen=True)
class Origin:
    """Where a base lies.

    Args:
        name: What the adapter calls it, so that it is found elsewhere too.
        files: Its files.
    """

    name: str
    files: Repository

    @property
    def moving(self) -> bool:
        """Whether the name may stand for other weights tomorrow."""
        return self.files.moving

    @property
    def identity(self) -> str:
        """What stands for its weights, and for no others: the commit, or the name with a hash of the files."""
        from obliq_models.derived import fingerprint

        if self.files.commit:
            return self.files.commit
        try:
            return f"{self.name} ({FILES}{fingerprint(Path(self.files.place))})"
        except OSError as error:
            raise UserError(f"cannot read {error.filename or self.files.place}: {error.strerror or error}") from error


def origin(recipe: Recipe) -> Origin:
    """Return the base that a recipe names, at the commit that its revision stands for now.

    Raises:
        MissingExtraError: If it is the packaged one, and the package is not installed.
        UserError: If it is nowhere, or an adapter itself.
    """
    from obliq_eval.catalogue import resolve
    from obliq_models.pins import PINS
    from obliq_models.repositories import local_base, settle
    from obliq_models.retrievers import minilm

    told = recipe.model.base
    if told in PACKAGED:
        entry = resolve("minilm")
        place = minilm.folder(f"model.base {told}", recipe.model.revision or entry.revision)
        return Origin(MINILM, settle(str(place), path=str(place)))
    folder = local_base(told)
    name = str(folder) if folder is not None else told
    files = settle(name, recipe.model.revision or PINS.get(told), path=name if folder is not None else None)
    if files.has(CONFIG):
        raise UserError(f"model.base {told} is an adapter itself; fold it into its base first (obliq merge)")
    return Origin(name, files)


def build(recipe: Recipe, base: Origin | None = None) -> SentenceTransformer:
    """Load the base and add a new adapter, whose weights depend on the seed alone.

    Only the adapter can be trained. Prefixes and lengths are the model's own, so that its files carry them.

    Args:
        recipe: The recipe.
        base: Where its base is; by default `origin` looks.

    Raises:
        MissingExtraError: If peft is not installed, or the base is packaged and its package is not.
        UserError: If the base is not whole, needs code that nobody vouches for, is causal where that is refused, has
            no layer for a target, or has fewer positions than a length.
    """
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise MissingExtraError("peft", "train", "training an adapter") from error
    import torch

    base = origin(recipe) if base is None else base
    model = _loaded(recipe, base)
    network: Any = model[0].model
    _set_dropout(network, recipe.model.dropout)
    layers = [name for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)]
    idle = [name for name in layers if "pooler" in name.split(".")]  # no vector is read from it
    check_targets(recipe, layers, idle)
    check_rank(recipe, network)
    config = LoraConfig(
        task_type="FEATURE_EXTRACTION",
        r=recipe.lora.rank,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=list(recipe.lora.targets),
        exclude_modules=[name for name in idle if matches(name, recipe.lora.targets)] or None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.run.seed)
        model.add_adapter(config)
    config.base_model_name_or_path, config.revision = base.name, base.files.commit
    problems = _one_way(model) if recipe.model.bidirectional else []
    if problems:
        raise UserError(f"model.base {recipe.model.base} with its adapter: {problems[0]}")
    _set_reading(model, recipe)
    return model


def _loaded(recipe: Recipe, base: Origin) -> SentenceTransformer:
    from obliq_models.retrievers import adapters, checks
    from obliq_models.retrievers.guards import checked, pickle_problems

    files, name = base.files, f"model.base {recipe.model.base}"
    parts = adapters.Parts(files, None, {}, files)
    if problems := pickle_problems(files):
        raise UserError(f"{name}: {problems[0]}")
    code = adapters.code(name, files, trust=recipe.model.trust_remote_code)

    def make() -> SentenceTransformer:
        return adapters.build(
            parts,
            code,
            DTYPES[recipe.run.precision],
            recipe.model.pooling,
            "cpu",
            words_code=bool(code["trust_remote_code"]),
            normalize=recipe.model.normalize,
            allow_pickle=False,
        )

    def wrong(model: SentenceTransformer) -> Iterator[str]:
        yield from checks.padding_problems(model.tokenizer)
        if recipe.model.bidirectional:
            yield from _one_way(model)

    return checked(name, files.place, make, wrong)


def _set_dropout(network: Any, share: float) -> None:
    """Set the dropout of the base's own layers: its weights rest, and on a CPU it would double the time of a step."""
    import torch

    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = share
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = share


def _one_way(model: SentenceTransformer) -> list[str]:
    from obliq_models.retrievers import checks

    hint = "; take another base, or say model.bidirectional = false where this is meant"
    training = model.training
    model.eval()
    try:
        return [problem + hint for problem in checks.one_way(model)]
    finally:
        model.train(training)


def matches(layer: str, targets: tuple[str, ...]) -> bool:
    """Tell whether a layer's name is a target, or ends with one, as PEFT reads targets."""
    return any(layer == target or layer.endswith(f".{target}") for target in targets)


def check_rank(recipe: Recipe, network: Any) -> None:
    """Refuse a rank beyond which an adapter can say nothing more, whatever memory it takes."""
    import torch

    adapted = {
        name: layer
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Linear) and matches(name, recipe.lora.targets)
    }
    name, most = max(
        ((name, min(layer.in_features, layer.out_features)) for name, layer in adapted.items()), key=lambda one: one[1]
    )
    if recipe.lora.rank > most:
        raise UserError(
            f"lora.rank is {recipe.lora.rank:,}, and no change of a layer of {recipe.model.base} has a rank above "
            f"{most:,} ({name}): lower it"
        )


def check_targets(recipe: Recipe, layers: list[str], idle: Sequence[str] = ()) -> None:
    """Refuse targets that are the end of no linear layer's name, or of idle ones' alone."""
    useful = [layer for layer in layers if layer not in idle]
    absent = [target for target in recipe.lora.targets if not any(matches(layer, (target,)) for layer in useful)]
    if recipe.lora.targets and not absent:
        return
    ends = Counter(layer.rpartition(".")[2] for layer in useful)
    told = f"names {', '.join(absent)}, which ends the name of no layer that a vector is read from"
    told = told if absent else "is empty"
    hint = near(absent[0], ends) if absent else ""
    raise UserError(
        f"lora.targets {told} in {recipe.model.base}{hint}; its linear layers end in {', '.join(sorted(ends))}"
    )


def _set_reading(model: SentenceTransformer, recipe: Recipe) -> None:
    """Give the model its prefixes and lengths, once it is sure that it has positions for them, in training too."""
    from obliq_models.encoders.sentence import SentenceEncoder

    own = recipe.model
    for query, document in (
        (own.query_length, own.document_length),
        (own.encode_query_length, own.encode_document_length),
    ):
        SentenceEncoder(model, f"model.base {own.base}", "0", query_length=query, document_length=document)
    first: Any = model[0]
    first.query_length, first.document_length = own.encode_query_length, own.encode_document_length
    model.max_seq_length = max(own.encode_query_length, own.encode_document_length)  # for plain `encode`
    model.prompts = {"query": own.query_prefix, "document": own.document_prefix}


def adapter(model: SentenceTransformer, state: State | None = None) -> dict[str, torch.Tensor]:
    """Return the adapter's weights by the names that they have in the model.

    Args:
        model: The model.
        state: All of its weights, where they are not its own at the moment, being spread over devices.
    """
    found = dict(model.state_dict()) if state is None else state
    return {key: weight.detach().cpu() for key, weight in found.items() if ".lora_" in key}


def fingerprint(weights: State) -> str:
    """Return the SHA-256 of weights with their names."""
    import torch

    found = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        found.update(name.encode())
        found.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def save(model: SentenceTransformer, folder: Path, weights: State | None = None) -> None:
    """Write the adapter with all that makes it a model of sentence-transformers, and nothing of the base's weights.

    Args:
        model: The model; if it is spread over devices, only its shape is looked at.
        folder: An existing folder.
        weights: What `adapter` returned; by default the model's own.
    """
    from safetensors.torch import save as as_bytes

    given = adapter(model) if weights is None else weights
    with _writing(model[0], folder):
        model.save_pretrained(str(folder), create_model_card=False)
    saved = {_published(key): weight.contiguous() for key, weight in given.items()}
    (folder / WEIGHTS).write_bytes(as_bytes(saved, metadata={"format": "pt"}))


def load(model: SentenceTransformer, folder: Path, *, sharded: bool = False) -> None:
    """Put the weights of a folder that `save` wrote into a model of the same recipe.

    Args:
        model: The model.
        folder: The folder.
        sharded: Whether its weights are spread over devices; then this is called in every process.

    Raises:
        UserError: If they are not the weights of such a model.
    """
    from safetensors.torch import load_file

    from obliq_train.sharded import set_weights

    own = {_published(key): (key, weight.shape) for key, weight in model.named_parameters() if ".lora_" in key}
    found = load_file(folder / WEIGHTS)
    if {key: weight.shape for key, weight in found.items()} != {key: shape for key, (_, shape) in own.items()}:
        raise UserError(f"{folder} holds another adapter than the recipe's; give another --output, or --fresh")
    state = {own[key][0]: weight for key, weight in found.items()}
    if sharded:
        set_weights(model, state)
    else:
        model.load_state_dict(state, strict=False)


def _published(key: str) -> str:
    """Return a weight's name as adapters' files have it: PEFT's prefix, and no name of the adapter."""
    inside = key.removeprefix("0.model.").removeprefix("0.auto_model.")
    return f"base_model.model.{inside}".replace(".default.weight", ".weight")


@contextmanager
def _writing(transformer: Any, folder: Path) -> Iterator[None]:
    """Write the network's part, its adapter's configuration alone, in the same order of keys each time."""
    network = transformer.model

    def config_only(*_: object, **__: object) -> None:
        (told,) = network.peft_config.values()
        told.save_pretrained(str(folder))
        path = folder / CONFIG
        content = json.loads(path.read_text("utf-8")) | {"inference_mode": True}
        for key in ("target_modules", "exclude_modules"):  # sets, whose order differs between processes
            content[key] = content[key] and sorted(content[key])
        path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", "utf-8")

    network.save_pretrained = config_only
    try:
        yield
    finally:
        del network.save_pretrained
