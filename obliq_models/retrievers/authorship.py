"""Retrieval by authorship: LUAR's weights in the network that is written here, and encoders with a pooler of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from obliq_eval.errors import UserError, near, raise_all
from obliq_models.encoders.authorship import LuarEncoder
from obliq_models.encoders.luar import build, fill
from obliq_models.encoders.sentence import SentenceEncoder
from obliq_models.repositories import settle
from obliq_models.retrievers.dense import DTYPES, DenseRetriever
from obliq_models.retrievers.guards import checked, explained, listed, pad_token_problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokenizers import Tokenizer

    from obliq_models.repositories import Repository
    from obliq_models.shards import Storage

TOKENIZER, WEIGHTS, PICKLE = "tokenizer.json", "model.safetensors", "pytorch_model.bin"
POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def load(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    window: int = 512,
    episode: int = 1,
    batch_tokens: int | None = None,
    allow_pickle: bool = False,
    **settings: Any,
) -> DenseRetriever:
    """Load a checkpoint of LUAR. Its code is neither run nor fetched.

    Args:
        name: Its name on the hub, where no path is given.
        revision: Its commit or branch on the hub; the encoder carries the commit that it resolves to.
        path: A local folder; `revision` is then the hash of its content.
        device: Where to run; by default a GPU where there is one.
        dtype: Of the transformer's weights: `float32`, `bfloat16` or `float16`.
        window: See `LuarEncoder`.
        episode: See `LuarEncoder`.
        batch_tokens: See `LuarEncoder`.
        allow_pickle: Take `pytorch_model.bin` where there is no `model.safetensors`. It is read by torch's
            restricted unpickler, which builds tensors and runs nothing else.
        **settings: See `DenseRetriever`.

    Raises:
        UserError: If the repository or a file of it cannot be had, there are no safetensors, the weights are not
            LUAR's (see `luar.fill`), or a setting is wrong.
    """
    kind = _dtype(name, dtype)
    source = settle(name, revision, path=path)
    tokenizer_file, weights_file = _files(name, source, allow_pickle=allow_pickle)
    with explained(f"{name}: cannot read the weights in {weights_file}"):
        weights = _weights(weights_file)
    with explained(f"{name}: cannot build the model of {source}"):
        network = build(source.record("config.json"), weights)
        tokenizer = _tokenizer(tokenizer_file)
    fill(network, weights, f"{name} in {source}")
    network.transformer.to(kind)
    network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    encoder = LuarEncoder(
        network,
        tokenizer,
        name,
        source.commit or revision,
        window=window,
        episode=episode,
        batch_tokens=batch_tokens,
    )
    with explained(f"{name}: the model of {source} cannot encode a text"):
        encoder.check()
    return DenseRetriever(encoder, sources=[source], **settings)


def load_pooled(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    allow_pickle: bool = False,
    storage: Storage = "float32",
    task_prompt: bool = False,
    instructions: Mapping[str, str] | None = None,
    **settings: Any,
) -> DenseRetriever:
    """Load a plain transformer whose vectors are those of its own pooler, tanh(W h + b) of the first token's state h.

    Args:
        name: Its name on the hub, where no path is given.
        revision: Its commit, branch or tag on the hub; the encoder carries the commit that it resolves to.
        path: A local folder; `revision` is then the hash of its content.
        device: Where to run.
        dtype: Of the weights: `float32`, `bfloat16` or `float16`.
        allow_pickle: See `load`.
        storage: See `DenseRetriever`.
        task_prompt: See `DenseRetriever`.
        instructions: See `DenseRetriever`.
        **settings: See `SentenceEncoder`.

    Raises:
        UserError: As `dense.load` says, and if the weights hold no pooler.
    """
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    kind = _dtype(name, dtype)
    source = settle(name, revision, path=path)
    _, weights_file = _files(name, source, allow_pickle=allow_pickle)
    with explained(f"{name}: cannot read the weights in {weights_file}"):
        held = _weights(weights_file)
    missing = [key for key in POOLER if key not in held]
    if missing:
        raise UserError(f"{name}: {source} is not a complete model: the files lack {listed(missing)}")

    def build() -> SentenceTransformer:
        given = {"use_safetensors": weights_file.name == WEIGHTS, "dtype": kind, **source.given}
        transformer = Transformer(
            source.place, model_kwargs=given, config_kwargs=dict(source.given), processor_kwargs=dict(source.given)
        )
        size = transformer.get_embedding_dimension()
        pooler = Dense(size, size, activation_function=torch.nn.Tanh())
        pooler.linear.load_state_dict({key.rpartition(".")[2]: held[key] for key in POOLER})
        return SentenceTransformer(modules=[transformer, Pooling(size, "cls"), pooler.to(kind)], device=device)

    model = checked(name, source.place, build, lambda model: pad_token_problems(model.tokenizer))
    encoder = SentenceEncoder(model, name, source.commit or revision, **settings)
    with explained(f"{name}: the model in {source} cannot encode a text"):
        encoder.check()
    return DenseRetriever(
        encoder, storage=storage, task_prompt=task_prompt, instructions=instructions, sources=[source]
    )


def _dtype(name: str, dtype: str) -> Any:
    if dtype not in DTYPES:
        raise UserError(f"{name}: dtype is {dtype!r}, not one of {', '.join(DTYPES)}{near(dtype, DTYPES)}")
    return getattr(torch, dtype)


def _files(name: str, source: Repository, *, allow_pickle: bool) -> tuple[Path, Path]:
    """Return where the tokenizer and the weights are; a pickle is not even fetched unless it is allowed."""
    tokenizer, weights = source.file(TOKENIZER), source.file(WEIGHTS)
    if weights is None and allow_pickle:
        weights = source.file(PICKLE)
    problems = [] if tokenizer else [f"it has no {TOKENIZER}"]
    if weights is None and allow_pickle:
        problems.append(f"it has neither {WEIGHTS} nor {PICKLE}")
    elif weights is None:
        problems.append(f"it has no {WEIGHTS}; name a revision that has it, or set allow_pickle to read {PICKLE}")
    raise_all(problems, f"{name}: {source} is not a complete model")
    found = [file for file in (tokenizer, weights) if file is not None]
    return found[0], found[1]


def _weights(file: Path) -> Mapping[str, torch.Tensor]:
    if file.name == WEIGHTS:
        from safetensors.torch import load_file

        return load_file(file)
    weights: Mapping[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def _tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
