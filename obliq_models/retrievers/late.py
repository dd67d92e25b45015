"""Late interaction: one vector per token, and exact MaxSim over every document, without PyLate and without an index."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import torch

from obliq_eval.errors import UserError, near, raise_all
from obliq_models import search
from obliq_models.encoders.base import ROLES, Role
from obliq_models.repositories import settle
from obliq_models.retrievers.base import Retriever, Texts
from obliq_models.retrievers.guards import checked, explained, pad_token_problems, pickle_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sentence_transformers import MultiVectorEncoder

CHARACTERS = 1 << 22
"""Of the documents whose vectors are held at a time: about a million tokens, 512 MB at 128 dimensions."""
DTYPES = ("float32", "bfloat16", "float16")
_PROMPTS: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}

logger = logging.getLogger(__name__)


def load(
    name: str,
    revision: str | None = None,
    *,
    repo: str | None = None,
    path: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    **settings: Any,
) -> LateRetriever:
    """Load a multi-vector model of sentence-transformers; it reads the checkpoints of PyLate as well.

    Args:
        name: Full name of the model.
        revision: Its commit on the hub.
        repo: Its repository on the hub, where that is not the name.
        path: A local folder instead.
        device: Where to run.
        dtype: Of the weights: `float32`, `bfloat16` or `float16`.
        trust_remote_code: Run code that the model brings.
        allow_pickle: Read weights in pickle's form, which can run code, where there are no safetensors.
        **settings: See `LateRetriever`.

    Raises:
        UserError: If there is no complete model (see `guards.checked`), a length is more than it has positions for,
            or a first text gives no vectors.
    """
    from sentence_transformers import MultiVectorEncoder  # takes seconds to import

    if dtype not in DTYPES:
        raise UserError(f"{name}: dtype is {dtype!r}, not one of {', '.join(DTYPES)}{near(dtype, DTYPES)}")
    source = settle(repo or name, revision, path=path)
    if not allow_pickle:
        raise_all(pickle_problems(source), name)
    weights: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if not allow_pickle:
        weights["use_safetensors"] = True

    def build() -> MultiVectorEncoder:
        return MultiVectorEncoder(
            source.place,
            revision=source.commit,
            device=device,
            trust_remote_code=trust_remote_code,
            model_kwargs=weights,
        )

    model = checked(name, source.place, build, lambda model: pad_token_problems(model.tokenizer))
    retriever = LateRetriever(model, **settings)
    retriever.sources = (source,)
    with explained(f"{name}: the model in {source} cannot encode a text"):
        for role in ROLES:
            retriever.encode(["a first text"], role)
    return retriever


class LateRetriever(Retriever):
    """The score of a document is the sum, over the query's tokens, of the best dot product with one of its tokens.

    Documents are encoded while they are searched, so that the vectors of about a million tokens are held at a time,
    whatever the corpus; nothing is stored, and a second search encodes again. Each distinct text is encoded once.

    Args:
        model: A loaded model.
        query_length: Longest query in tokens, prompt and special tokens included; by default the model's own.
        document_length: Longest document in tokens.
        document_lengths: `{task name: longest document in tokens}`, for tasks that have another one.
        batch_size: Texts at a time, where mteb does not say.

    Raises:
        UserError: If a length is more than the model has positions for.
    """

    def __init__(
        self,
        model: MultiVectorEncoder,
        *,
        query_length: int | None = None,
        document_length: int | None = None,
        document_lengths: Mapping[str, int] | None = None,
        batch_size: int = 32,
    ) -> None:
        super().__init__()
        from mteb.models.sentence_transformer_wrapper import MultiVectorWrapper

        self.model, self.batch_size = model, batch_size
        self._transformer: Any = model[0]
        self._max_sim: Any = MultiVectorWrapper(model).similarity  # in blocks that fit into memory
        self._lengths: dict[Role, int | None] = {"query": query_length, "document": document_length}
        self._document_lengths = dict(document_lengths or {})
        self._check_lengths()
        self._texts: Texts | None = None
        self._rows = torch.zeros(0, dtype=torch.int64)

    @property
    def dims(self) -> int | None:
        """Length of the vector of a token."""
        return self.model.get_embedding_dimension()

    def fit(self, texts: Texts) -> None:
        """Find the distinct texts."""
        places: dict[bytes, int] = {}
        rows: list[int] = []
        firsts: list[int] = []
        for row, text in enumerate(texts):
            place = places.setdefault(
                hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), len(places)
            )
            rows.append(place)
            if place == len(firsts):
                firsts.append(row)
        self._rows = torch.tensor(rows)
        self._texts = texts.select(firsts)

    def score(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """Yield MaxSim with every document."""
        if self._texts is None:
            return
        self.counts = {}
        queries = self.encode(texts, "query")
        scores = torch.empty(len(texts), len(self._texts))
        first = 0
        for chunk in self._chunks(self._texts):
            found = self._max_sim(queries, self.encode(chunk, "document"))
            scores[:, first : first + len(chunk)] = torch.as_tensor(found)
            first += len(chunk)
        self._report()
        height = max(1, search.BLOCK // max(1, len(self._rows)))
        for top in range(0, len(texts), height):
            yield scores[top : top + height][:, self._rows]

    def encode(self, texts: Sequence[str], role: Role) -> list[torch.Tensor]:
        """Return for each text one vector per token that counts, float32, shape (tokens, dims), on the CPU."""
        self._count_cut(texts, role)
        setting = f"{role}_length"
        own = getattr(self._transformer, setting)
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        setattr(self._transformer, setting, self.length(role))
        try:
            found = encode(
                list(texts),
                convert_to_numpy=True,
                **{"batch_size": self.batch_size, **self.encode_kwargs, "show_progress_bar": False},
            )
        finally:
            setattr(self._transformer, setting, own)
        return [torch.from_numpy(vectors).float() for vectors in found]

    def length(self, role: Role) -> int | None:
        """Return how many tokens of a text are read, for the task that is running."""
        if role == "document" and self.task is not None and self.task.name in self._document_lengths:
            return self._document_lengths[self.task.name]
        if role == "query" and self._transformer.query_expansion is not None:
            return int(self._transformer.query_expansion["length"])  # shorter queries are filled up to it
        own = getattr(self._transformer, f"{role}_length")
        return self._lengths[role] or own or self.model.max_seq_length

    def _check_lengths(self) -> None:
        most = getattr(
            getattr(getattr(self.model[0], "auto_model", None), "config", None), "max_position_embeddings", 0
        )
        for length in (*self._lengths.values(), *self._document_lengths.values()):
            if length and most and length > most:
                raise UserError(f"a length is {length}, but the model has positions for {most} tokens only")

    def _chunks(self, texts: Iterable[str]) -> Iterator[list[str]]:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]

        quiet = None if self.encode_kwargs.get("show_progress_bar", True) else True  # None: quiet when piped
        chunk: list[str] = []
        size = 0
        for text in tqdm(texts, desc="Encoding documents", unit=" documents", disable=quiet):
            chunk.append(text)
            size += len(text) + 1
            if size >= CHARACTERS:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _count_cut(self, texts: Sequence[str], role: Role) -> None:
        limit = self.length(role)
        if not limit or not len(texts):
            return
        prompt = next((self.model.prompts[own] or "" for own in _PROMPTS[role] if own in self.model.prompts), "")
        tokens = self.model.tokenizer([prompt + text for text in texts], truncation=False, verbose=False)["input_ids"]
        over = [len(ids) - limit for ids in tokens if len(ids) > limit]
        for what, number in ((f"truncated {role} texts", len(over)), (f"lost {role} tokens", sum(over))):
            self.counts[what] = self.counts.get(what, 0) + number

    def _report(self) -> None:
        for role in ROLES:
            cut = self.counts.get(f"truncated {role} texts", 0)
            if cut:
                logger.warning("%s: %d %s texts were cut at %s tokens", self.name, cut, role, self.length(role))
