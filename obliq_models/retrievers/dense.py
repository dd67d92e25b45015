"""Dense retrieval with any sentence-transformers model: prefixes, two lengths, pooling, and exact search."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from obliq_eval.errors import UserError, near
from obliq_models.retrievers.base import Retriever, Texts, batches
from obliq_models.retrievers.guards import checked, explained
from obliq_models.search import products

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

Role = Literal["query", "document"]
_OWN_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
SHARD = 8_192
"""Texts that are encoded at a time; they are sorted by length inside a shard."""

logger = logging.getLogger(__name__)


def load(
    name: str,
    revision: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    pooling: str | None = None,
    trust_remote_code: bool = False,
    **settings: Any,
) -> DenseRetriever:
    """Load a sentence-transformers model.

    Args:
        name: Its name on the hub, where no path is given.
        revision: Its commit on the hub.
        path: A local folder; `revision` is then the hash of its content.
        device: Where to run.
        dtype: Of the weights: `float32`, `bfloat16` or `float16`.
        pooling: `mean`, `cls`, `lasttoken` and so on, instead of what the folder says.
        trust_remote_code: Run code that the model brings.
        **settings: See `DenseRetriever`.

    Raises:
        UserError: If the folder holds no complete model (see `guards.checked`), a setting is wrong, or a first text
            gives no vector, as `DenseRetriever.encode` says.
    """
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    source = path or name
    given: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": None if path else revision}
    weights = {"dtype": getattr(torch, dtype)}

    def build() -> SentenceTransformer:
        if pooling is None:
            return SentenceTransformer(source, device=device, model_kwargs=weights, **given)
        transformer = Transformer(
            source, model_kwargs={**given, **weights}, config_kwargs=given, processor_kwargs=given
        )
        pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
        return SentenceTransformer(modules=[transformer, pool], device=device)

    retriever = DenseRetriever(checked(name, source, build), **settings)
    with explained(f"{name}: the model in {source} cannot encode a text"):
        for role in get_args(Role):
            retriever.encode(["a first text"], role)
    return retriever


class DenseRetriever(Retriever):
    """One vector per text, dot product of normalised vectors, every document scored.

    What is put before a text is the prefix, then the named prompt, then the task's own prompt, each only where it is
    set. Where neither prefix nor prompt name is set for a role, the model's own prompt for it is used, as
    sentence-transformers does. Texts that are cut at the length are counted in `counts` and logged.

    Args:
        model: A loaded model.
        query_prefix: Put before every query; "" for nothing at all.
        document_prefix: Put before every document; "" for nothing at all.
        query_prompt_name: A prompt of the model's own table, for queries.
        document_prompt_name: The same for documents.
        task_prompt: Put the task's own query prompt, as mteb's task metadata gives it, before queries.
        query_length: Longest query in tokens, prefix and special tokens included; by default the model's own.
        document_length: Longest document in tokens.
        normalize: Bring vectors to unit length, so that the score is the cosine.
        batch_size: Texts at a time, where mteb does not say.

    Raises:
        UserError: If a prompt name is unknown, or a length is more than the model has positions for.
    """

    def __init__(  # noqa: PLR0913 -- each is a setting of its own
        self,
        model: SentenceTransformer,
        *,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        query_prompt_name: str | None = None,
        document_prompt_name: str | None = None,
        task_prompt: bool = False,
        query_length: int | None = None,
        document_length: int | None = None,
        normalize: bool = True,
        batch_size: int = 32,
    ) -> None:
        super().__init__()
        self.model, self.normalize, self.batch_size, self.task_prompt = model, normalize, batch_size, task_prompt
        self._lengths: dict[Role, int | None] = {"query": query_length, "document": document_length}
        self._prompts: dict[Role, str] = {
            "query": self._prompt("query", query_prefix, query_prompt_name),
            "document": self._prompt("document", document_prefix, document_prompt_name),
        }
        self._check_lengths()
        self._documents = torch.zeros(0, 0)

    def fit(self, texts: Texts) -> None:
        """Encode every document."""
        shards = [self.encode(shard, "document") for shard in self._shards(texts)]
        self._documents = torch.from_numpy(np.concatenate(shards))
        self._report("document", len(texts))

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """Yield dot products with every document."""
        queries = torch.from_numpy(self.encode(texts, "query"))
        self._report("query", len(texts))
        yield from products(queries, self._documents)

    def encode(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Return one vector per text, float32, shape (texts, dims).

        Raises:
            UserError: If the model returns another number of vectors, of another length than it declares, or one
                that is not finite.
        """
        prompt = self.prompt(role)
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with self._limited(role):
            self._count_cut(texts, prompt, role)
            vectors = encode(
                list(texts),
                prompt=prompt,
                normalize_embeddings=self.normalize,
                **{"batch_size": self.batch_size, **self.encode_kwargs, "show_progress_bar": False},
            )
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise UserError(f"{self.name} returned vectors of shape {vectors.shape} for {len(texts)} texts ({role})")
        declared = self.model.get_embedding_dimension()
        if declared is not None and vectors.shape[1] != declared:
            raise UserError(f"{self.name} returned vectors of {vectors.shape[1]} dimensions, but declares {declared}")
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise UserError(f"{self.name} returned a vector that is not a number, for the {role} {texts[row][:60]!r}")
        return vectors

    def prompt(self, role: Role) -> str:
        """Return what is put before every text of this role."""
        if role != "query" or not self.task_prompt or self.task is None or self.task.prompt is None:
            return self._prompts[role]
        own = self.task.prompt
        return self._prompts[role] + (own if isinstance(own, str) else str(own.get("query") or ""))

    def _prompt(self, role: Role, prefix: str | None, prompt_name: str | None) -> str:
        known = {name: text or "" for name, text in self.model.prompts.items()}
        if prompt_name is not None and prompt_name not in known:
            raise UserError(f"the model has no prompt {prompt_name!r}{near(prompt_name, known)} ({role}_prompt_name)")
        if prefix is None and prompt_name is None:
            return next((known[own] for own in _OWN_PROMPTS[role] if known.get(own)), "")
        return (prefix or "") + (known[prompt_name] if prompt_name is not None else "")

    def _check_lengths(self) -> None:
        config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
        most = getattr(config, "max_position_embeddings", None)
        for role, length in self._lengths.items():
            if length is not None and most is not None and length > most:
                raise UserError(f"{role}_length is {length}, but the model has positions for {most} tokens only")
            if length is not None and getattr(self.model[0], f"{role}_length", None) is not None:
                setattr(self.model[0], f"{role}_length", length)

    @contextmanager
    def _limited(self, role: Role) -> Iterator[None]:
        """Hold the model to this role's length."""
        own, length = self.model.max_seq_length, self._lengths[role]
        if length is None:  # a model of word vectors has no length, and none can be set
            yield
            return
        self.model.max_seq_length = length
        try:
            yield
        finally:
            self.model.max_seq_length = own

    def _shards(self, texts: Texts) -> Iterator[list[str]]:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        quiet = None if self.encode_kwargs.get("show_progress_bar", True) else True  # None: quiet when piped
        with tqdm(total=len(texts), desc="Encoding documents", unit=" documents", disable=quiet) as bar:
            for shard in batches(texts, SHARD):
                yield shard
                bar.update(len(shard))

    def _count_cut(self, texts: Sequence[str], prompt: str, role: Role) -> None:
        limit = self.model.max_seq_length
        if limit is None or limit == float("inf") or not len(texts):
            return
        tokens = self.model.tokenizer([prompt + text for text in texts], truncation=False, verbose=False)["input_ids"]
        key = f"truncated {role} texts"
        self.counts[key] = self.counts.get(key, 0) + sum(len(ids) > limit for ids in tokens)

    def _report(self, role: Role, texts: int) -> None:
        cut = self.counts.get(f"truncated {role} texts", 0)
        if cut:
            limit = self._lengths[role] or self.model.max_seq_length
            logger.warning("%s: %d of %d %s texts were cut at %s tokens", self.name, cut, texts, role, limit)
