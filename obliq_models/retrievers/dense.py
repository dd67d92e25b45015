"""Dense retrieval: one vector per text, dot products, exact search; and the loader of sentence-transformers models."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from obliq_eval.errors import UserError, near, raise_all
from obliq_models.embeddings import embed
from obliq_models.encoders.sentence import SentenceEncoder
from obliq_models.repositories import settle
from obliq_models.retrievers.base import Retriever
from obliq_models.retrievers.guards import checked, explained, pad_token_problems, pickle_problems
from obliq_models.search import products

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from obliq_models.embeddings import Embeddings
    from obliq_models.encoders.base import Encoder, Role
    from obliq_models.engines import Engine
    from obliq_models.repositories import Repository
    from obliq_models.retrievers.base import Texts
    from obliq_models.shards import Storage

DTYPES = ("float32", "bfloat16", "float16")
MTEB_BATCH = 32
"""What mteb gives as `batch_size` where nobody has asked for one. Whoever asks for as many is taken for nobody, and
the token budget decides alone; 31, or `batch_size` in a TOML file, sets a limit."""

_KIND = "SentenceTransformer"

logger = logging.getLogger(__name__)


def load(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    repo: str | None = None,
    path: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    pooling: str | None = None,
    attn_implementation: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    storage: Storage = "float32",
    task_prompt: bool = False,
    instructions: Mapping[str, str] | None = None,
    **settings: Any,
) -> DenseRetriever:
    """Load a sentence-transformers model.

    Args:
        name: Its full name; its repository on the hub as well, where neither `repo` nor `path` is given.
        revision: Its commit, branch or tag on the hub; the encoder carries the commit that it resolves to.
        repo: Its repository on the hub, for a model that is registered under another name.
        path: A local folder; `revision` is then what identifies its content, by default a hash of the weights.
        device: Where to run.
        dtype: Of the weights: `float32`, `bfloat16` or `float16`.
        pooling: `mean`, `cls`, `lasttoken` and so on, instead of what the folder says.
        attn_implementation: `sdpa`, `flash_attention_2`, `eager`; by default what transformers chooses.
        trust_remote_code: Run code that the model brings.
        allow_pickle: Read weights in pickle's form, which can run code, where there are no safetensors.
        storage: See `DenseRetriever`.
        task_prompt: See `DenseRetriever`.
        instructions: See `DenseRetriever`.
        **settings: See `SentenceEncoder`.

    Raises:
        UserError: If the folder holds no complete model (see `guards.checked`), its tokenizer has no padding token, a
            setting is wrong, or first texts give no vectors or others together than alone (see
            `SentenceEncoder.check`).
    """
    from sentence_transformers import SentenceTransformer  # takes seconds to import
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    if dtype not in DTYPES:
        raise UserError(f"{name}: dtype is {dtype!r}, not one of {', '.join(DTYPES)}{near(dtype, DTYPES)}")
    source = settle(repo or name, revision, path=path)
    kind = source.record("config_sentence_transformers.json").get("model_type", _KIND)
    if kind != _KIND:  # sentence-transformers would pool what was trained to be something else
        raise UserError(f"{name}: {source} is a {kind}, not a model with one vector for each text")
    if not allow_pickle:
        raise_all(pickle_problems(source), name)
    given: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": source.commit}
    weights: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if attn_implementation is not None:
        weights["attn_implementation"] = attn_implementation
    if not allow_pickle:
        weights["use_safetensors"] = True

    def build() -> SentenceTransformer:
        if pooling is None:
            return SentenceTransformer(source.place, device=device, model_kwargs=weights, **given)
        transformer = Transformer(
            source.place, model_kwargs={**given, **weights}, config_kwargs=dict(given), processor_kwargs=dict(given)
        )
        pool = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
        return SentenceTransformer(modules=[transformer, pool], device=device)

    model = checked(name, source.place, build, lambda model: pad_token_problems(model.tokenizer))
    encoder = SentenceEncoder(model, name, source.commit or revision, **settings)
    with explained(f"{name}: the model in {source} cannot encode a text"):
        encoder.check()
    return DenseRetriever(
        encoder, storage=storage, task_prompt=task_prompt, instructions=instructions, sources=[source]
    )


class DenseRetriever(Retriever):
    """One vector per text, dot product of vectors, every document scored.

    Vectors are kept in the embedding store and found there again. Texts that are cut are counted in `counts` and
    logged.

    Args:
        encoder: What turns texts into vectors.
        task_prompt: Put the task's own query prompt, as mteb's task metadata gives it, before queries.
        instructions: `{task name: what is put before its queries}`, in place of the task's own prompt.
        storage: Type in which a value is kept: `float32`, `float16` or `bfloat16`.
        engine: Where documents are encoded; by default in this process.
        sources: Where the weights came from; see `Retriever`.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        task_prompt: bool = False,
        instructions: Mapping[str, str] | None = None,
        storage: Storage = "float32",
        engine: Engine | None = None,
        sources: Sequence[Repository] = (),
    ) -> None:
        super().__init__()
        self.sources = tuple(sources)
        self.encoder, self.task_prompt, self.instructions = encoder, task_prompt, dict(instructions or {})
        self.storage, self.engine = storage, engine
        self._documents: Embeddings | None = None

    @property
    def dims(self) -> int:
        """Length of one vector."""
        return self.encoder.dims

    def fit(self, texts: Texts) -> None:
        """Encode every document that is not in the store."""
        self._documents = self._embed(texts, "document", self.engine)

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """Yield dot products with every document.

        Raises:
            UserError: If no documents have been indexed.
        """
        if self._documents is None:
            raise UserError(f"{self.name} has indexed no documents that could be scored")
        yield from products(self._embed(texts, "query").matrix(), self._documents)

    def encode(self, texts: Sequence[str], role: Role) -> NDArray[Any]:
        """Return one vector per text, float32, shape (texts, dims), past the store.

        Raises:
            UserError: As `Encoder.encode` says.
        """
        return self.encoder.encode(texts, role, self.instruction(role)).vectors

    def instruction(self, role: Role) -> str:
        """Return what is put before every text of this role for the task that is running."""
        if role != "query" or self.task is None:
            return ""
        told = self.instructions.get(self.task.name)
        if told is not None or not self.task_prompt:
            return told or ""
        own = self.task.prompt
        return own if isinstance(own, str) else str((own or {}).get("query") or "")

    def _embed(self, texts: Texts | Sequence[str], role: Role, engine: Engine | None = None) -> Embeddings:
        size = self.encode_kwargs.get("batch_size")
        if size not in (None, MTEB_BATCH) and hasattr(self.encoder, "batch_size"):
            self.encoder.batch_size = int(size)
        found = embed(
            self.encoder,
            texts,
            role,
            instruction=self.instruction(role),
            storage=self.storage,
            engine=engine,
            progress=bool(self.encode_kwargs.get("show_progress_bar", True)),
        )
        self.counts |= found.counts
        cut, lost = (found.counts[f"{what} {role} {of}"] for what, of in (("truncated", "texts"), ("lost", "tokens")))
        if cut:
            logger.warning(
                "%s: %d of %d distinct %s texts were cut, %d tokens of them not read",
                self.name,
                cut,
                found.distinct,
                role,
                lost,
            )
        return found
