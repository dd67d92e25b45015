"""OBLIQ-IR and whatever is trained like it: a bidirectional base, a LoRA adapter, mean pooling, unit length.

sentence-transformers loads such an adapter from its name alone, but takes its base from wherever `main` points. Here
base and adapter are each loaded at one commit, by the same calls, so that the vectors are the same to the bit; and
what could be wrong with them is an error before the first text is encoded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.encoders.sentence import SentenceEncoder
from obliq_models.pins import PINS
from obliq_models.repositories import Repository, settle
from obliq_models.retrievers import adapters, checks
from obliq_models.retrievers.dense import DenseRetriever
from obliq_models.retrievers.guards import checked, explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from sentence_transformers import SentenceTransformer

    from obliq_models.encoders.base import Role
    from obliq_models.retrievers.base import Texts

logger = logging.getLogger(__name__)


def load(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    path: str | None = None,
    base: str | None = None,
    base_revision: str | None = None,
    device: str | None = None,
    dtype: str = "bfloat16",
    pooling: str = "mean",
    query_prefix: str = "",
    document_prefix: str = "",
    instruction: str = "",
    query_length: int | None = None,
    document_length: int | None = None,
    normalize: bool = True,
    autocast: bool = False,
    dims: int | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    causal: bool = False,
    **settings: Any,
) -> ObliqIR:
    """Load an adapter with its base, or a whole model.

    Args:
        name: Full name; where no path is given, a repository of the hub.
        revision: Its commit, branch or tag on the hub.
        path: A local folder, an adapter's or a whole model's; `revision` is then the hash of its content.
        base: What the adapter adapts: a folder or a repository; by default what its configuration says.
        base_revision: Commit of the base on the hub; by default the pinned one where there is one, else the newest.
        device: Where to run.
        dtype: Of all weights: `float32`, `bfloat16` or `float16`. The adapter's are loaded in the base's.
        pooling: How token states become one vector.
        query_prefix: Put before every query.
        document_prefix: Put before every document.
        instruction: Put after the prefix of every query; the published checkpoint knows none.
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
        normalize: Bring vectors to unit length.
        autocast: Compute in bfloat16 where the weights are float32.
        dims: Dimensions that the publisher states.
        trust_remote_code: Run the code that the model or its base brings, whoever wrote it.
        allow_pickle: Read weights in pickle's form, which can run code, where there are no others.
        causal: Accept a model whose tokens see none of those behind them, for which `lasttoken` is the pooling.
        **settings: See `DenseRetriever`.

    Raises:
        MissingExtraError: If there is an adapter, and peft is not installed.
        UserError: If anything is missing, unsafe, or not what it is said to be; see `guards.checked` and `checks`.
    """
    source = settle(name, revision, path=path)
    parts = adapters.find_parts(name, source, base, base_revision)
    adapters.check_files(name, parts, pooling, allow_pickle=allow_pickle)
    run_code, words_code = (adapters.code(name, part, trust=trust_remote_code) for part in (parts.weights, parts.words))

    def build() -> SentenceTransformer:
        return adapters.build(
            parts,
            run_code,
            dtype,
            pooling,
            device,
            words_code=bool(words_code["trust_remote_code"]),
            normalize=normalize,
            allow_pickle=allow_pickle,
        )

    def wrong(model: SentenceTransformer) -> Iterator[str]:
        if not causal:
            yield from checks.one_way(model)
        yield from checks.padding_problems(model.tokenizer)
        yield from checks.dimension_problems(model, dims)

    def idle(model: SentenceTransformer) -> Iterator[str]:
        if parts.adapter is not None:
            yield from checks.adapter_problems(model, parts.config)

    place = source.place if parts.adapter is None else f"the adapter {source.place} on {parts.weights.place}"
    model = checked(name, place, build, wrong, parts.words.place, idle)
    encoder = AdaptedEncoder(
        model,
        name,
        source.commit or revision,
        base=parts.weights,
        query_prefix=query_prefix + instruction,
        document_prefix=document_prefix,
        query_length=query_length,
        document_length=document_length,
        normalize=normalize,
        autocast=autocast,
    )
    with explained(f"{name}: the model in {source} cannot encode a text"):
        encoder.check()
    sources = [source] if parts.adapter is None else [source, parts.weights]
    retriever = ObliqIR(encoder, sources=sources, **settings)
    for part, asked in {parts.weights: base_revision, source: revision}.items():
        if part.commit and asked != part.commit and part.commit != PINS.get(part.place):
            logger.warning("%s: no commit of %s is pinned; %s was loaded", name, part.place, part.commit)
    return retriever


def without_weights(name: str, revision: str | None = None, **_: Any) -> ObliqIR:  # noqa: ARG001 -- a loader's form
    """Say how to give a checkpoint to a model that has none of its own.

    Raises:
        UserError: Always.
    """
    alias = name.rpartition("/")[2].lower()
    raise UserError(
        f"{name} has no published weights: train one and give its folder, as in `obliq run -m {alias}@FOLDER`"
    )


class AdaptedEncoder(SentenceEncoder):
    """A sentence encoder whose vectors also depend on the commit of its base.

    Args:
        *args: See `SentenceEncoder`.
        base: What its weights, or those that its adapter changes, were loaded from.
        **settings: See `SentenceEncoder`.
    """

    def __init__(self, *args: Any, base: Repository, **settings: Any) -> None:
        self.base = base
        super().__init__(*args, **settings)

    def settings(self, role: Role) -> dict[str, Any]:
        """Return what can change a vector, the base included."""
        return {**super().settings(role), "base": str(self.base)}


class ObliqIR(DenseRetriever):
    """A dense retriever that counts texts that bring its prefix already."""

    encoder: AdaptedEncoder

    def fit(self, texts: Texts) -> None:
        """Encode every document."""
        super().fit(texts)
        self._count_prefixed(texts, "document")

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """Yield dot products with every document."""
        self._count_prefixed(texts, "query")
        yield from super().score(texts)

    def _count_prefixed(self, texts: Texts | Sequence[str], role: Role) -> None:
        prefix = self.encoder.prompt(role).strip()
        found = sum(text.startswith(prefix) for text in texts) if prefix else 0
        if found:
            self.counts[f"{role} texts that begin with the prefix already"] = found
            logger.warning(
                "%s: %d %s texts begin with %r already; it is put before them again", self.name, found, role, prefix
            )
