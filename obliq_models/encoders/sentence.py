"""Texts to vectors with a sentence-transformers model, batched by tokens rather than by texts."""

from __future__ import annotations

import hashlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from obliq_eval.errors import UserError, near
from obliq_models.encoders.base import ROLES, Encoded, Encoder, Role
from obliq_models.encoders.batching import plan
from obliq_models.encoders.tokens import Tokens, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    Vectors = NDArray[np.float32]
    Planner = Callable[[Sequence[int]], list[list[int]]]

_OWN_PROMPTS: Mapping[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
SLICE = 1_024
"""Texts whose tokens are in memory at once, twice: those that are encoded, and those that are tokenised meanwhile."""
BUDGETS = {"cpu": 1_024, "cuda": 65_536}
"""Padded tokens in a batch: on a CPU what stays in its cache, on a GPU enough to keep it busy."""
OVERHEADS = {"cpu": 32, "cuda": 1_024}
"""What a batch costs beside its tokens, in tokens."""
AGREE = {True: 0.9999, False: 0.999}
"""Least cosine between a text's vectors, alone and beside a longer text, in float32 and in less."""
FIRST_TEXTS = ("a first text", "a text that is a good deal longer than the other one " * 3)

logger = logging.getLogger(__name__)


class SentenceEncoder(Encoder):
    """Encodes with a sentence-transformers model.

    What is put before a text is the prefix, then the named prompt, then the instruction, each only where it is set.
    Where neither prefix nor prompt name is set for a role, the model's own prompt for it is used, as
    sentence-transformers does.

    Texts are tokenised once, a thread ahead of the network, sorted by tokens and put together by a token budget.
    Where sentence-transformers would feed the network anything else for a few probes (word vectors, chat templates,
    several modalities, modules of one's own), its own `encode_query` and `encode_document` are called instead:
    `fast` tells which.

    Args:
        model: A loaded model.
        name: Its full name.
        revision: What identifies its weights; by default a hash of them and of the tokenizer, so that no store takes
            other weights of the same name for these.
        query_prefix: Put before every query; "" for nothing at all.
        document_prefix: Put before every document; "" for nothing at all.
        query_prompt_name: A prompt of the model's own table, for queries.
        document_prompt_name: The same for documents.
        query_length: Longest query in tokens, prefix and special tokens included; by default the model's own.
        document_length: Longest document in tokens.
        normalize: Bring vectors to unit length.
        batch_tokens: Padded tokens in a batch; by default by the kind of device.
        batch_size: Texts in a batch at most.
        autocast: Compute in bfloat16 where the weights are float32.

    Raises:
        UserError: If a prompt name is unknown, a length is more than the model has positions for, a batch is to be
            empty, or autocast is asked for where it does not work.
    """

    def __init__(  # noqa: PLR0913 -- each is a setting of its own
        self,
        model: SentenceTransformer,
        name: str,
        revision: str | None,
        *,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        query_prompt_name: str | None = None,
        document_prompt_name: str | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        normalize: bool = True,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        autocast: bool = False,
    ) -> None:
        super().__init__(name, revision or content(model), _dims(model))
        self.model, self.normalize, self.autocast = model, normalize, autocast
        self.batch_tokens, self.batch_size = batch_tokens, batch_size
        self._given: dict[Role, int | None] = {"query": query_length, "document": document_length}
        self._before: dict[Role, str] = {
            "query": self._prompt("query", query_prefix, query_prompt_name),
            "document": self._prompt("document", document_prefix, document_prompt_name),
        }
        self._check_settings()
        model.eval()
        self.fast = all(self._reader(role, "") is not None for role in ROLES)

    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:
        """Encode, and count the tokens that are read and lost."""
        return self._encode(texts, role, instruction, self._plan)

    def settings(self, role: Role) -> dict[str, Any]:
        """Return what can change a vector, beside the weights."""
        config = getattr(getattr(self.model[0], "auto_model", None), "config", None)
        pooling = [getattr(module, "pooling_mode", None) for module in self.model]
        return {
            "prefix": self._before[role],
            "length": self.length(role),
            "pooling": [mode if isinstance(mode, str) else list(mode) for mode in pooling if mode is not None],
            "pools_prompt": self._pools_prompt,
            "modules": [type(module).__name__ for module in self.model],
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "autocast": self.autocast,
            "attention": getattr(config, "_attn_implementation", None),
            "truncate_dim": self.model.truncate_dim,
            "normalize": self.normalize,
        }

    def prompt(self, role: Role) -> str:
        """Return what is put before every text of this role, an instruction apart."""
        return self._before[role]

    def length(self, role: Role) -> int | None:
        """Return how many tokens of a text are read at most; None where there is no limit."""
        found = self._given[role] or getattr(self.model[0], f"{role}_length", None) or self.model.max_seq_length
        return int(found) if found is not None and found < 1e9 else None  # what tokenizers say that know no limit

    def with_length(self, role: Role, length: int) -> SentenceEncoder:
        """Return the same encoder, its model shared, that reads so many tokens of a text of this role.

        Raises:
            UserError: If that is more than the model has positions for.
        """
        other = copy(self)
        other._given = {**self._given, role: length}
        other._check_settings()
        return other

    def check(self) -> None:
        """Encode first texts of both roles, alone and together.

        Raises:
            UserError: If a text alone and padded beside a longer one does not give one and the same vector.
        """
        least = AGREE[self.model.dtype == torch.float32 and not self.autocast]
        for role in ROLES:
            alone = np.concatenate([self.encode([text], role).vectors for text in FIRST_TEXTS])
            together = self._encode(FIRST_TEXTS, role, "", lambda lengths: [list(range(len(lengths)))]).vectors
            norms = np.linalg.norm(alone, axis=1) * np.linalg.norm(together, axis=1)
            cosine = np.divide((alone * together).sum(1), norms, out=np.ones(2, np.float32), where=norms > 0).min()
            if not cosine >= least:  # NaN included
                raise UserError(
                    f"{self.name}: a {role} alone and the same beside a longer one give vectors of cosine "
                    f"{cosine:.4f}, not {least}; look at the tokenizer's padding side and pad token, and at the "
                    "model's attention mask and position ids"
                )

    @property
    def _pools_prompt(self) -> bool:
        return all(getattr(module, "include_prompt", True) for module in self.model)

    def _encode(self, texts: Sequence[str], role: Role, instruction: str, planner: Planner) -> Encoded:
        prompt = self._before[role] + instruction
        read = self._reader(role, instruction) if self.fast else None
        device = self.model.device.type
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16) if self.autocast else nullcontext():
            return self._slow(texts, role, prompt) if read is None else self._fast(texts, role, prompt, read, planner)

    def _fast(
        self, texts: Sequence[str], role: Role, prompt: str, read: Callable[[list[str]], Tokens], planner: Planner
    ) -> Encoded:
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))  # a slice holds texts of about one length
        slices = [order[first : first + SLICE] for first in range(0, len(order), SLICE)]
        vectors = np.zeros((len(texts), self.dims), np.float32)
        tokens = cut = lost = 0
        with ThreadPoolExecutor(1, "tokens") as ahead:

            def start(rows: list[int]) -> Any:
                return ahead.submit(read, [prompt + texts[row] for row in rows])

            coming = start(slices[0])
            for number, rows in enumerate(slices):
                here: Tokens = coming.result()
                if number + 1 < len(slices):
                    coming = start(slices[number + 1])
                tokens, cut, lost = tokens + sum(here.lengths), cut + here.cut, lost + here.lost
                for batch, found in self._forward(here, role, planner):
                    if found.shape[1] != vectors.shape[1]:  # other than declared, which `Encoder.encode` refuses
                        vectors = np.zeros((len(texts), found.shape[1]), np.float32)
                    vectors[[rows[row] for row in batch]] = found
                    if self.watch is not None:
                        self.watch(len(batch))
        return Encoded(vectors, tokens, cut, lost)

    def _forward(self, tokens: Tokens, role: Role, planner: Planner) -> Iterator[tuple[list[int], Vectors]]:
        """Yield batches with their vectors; a GPU is given all of them before the first vector is waited for.

        A text without any token, in a model without special tokens, has the zero vector. One of which nothing is left
        to pool, where the prompt is not, is encoded alone: its vector would depend on the padding beside it.
        """
        least = tokens.padding.prompt or 0 if not self._pools_prompt else 0
        some = [row for row, length in enumerate(tokens.lengths) if length > least]
        bare = [[row] for row, length in enumerate(tokens.lengths) if 0 < length <= least]
        made = []
        planned = planner([tokens.lengths[row] for row in some])
        for batch in [*([some[row] for row in chosen] for chosen in planned), *bare]:
            features = tokens.features(batch, self.model.device)
            found = self.model(features, task=role)["sentence_embedding"].float()[:, : self.model.truncate_dim]
            made.append((batch, torch.nn.functional.normalize(found, dim=1) if self.normalize else found))
        for batch, found in made:
            yield batch, found.cpu().numpy()

    def _slow(self, texts: Sequence[str], role: Role, prompt: str) -> Encoded:
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with self._limited(role):
            vectors = encode(
                list(texts),
                prompt=prompt,
                normalize_embeddings=self.normalize,
                batch_size=self.batch_size or 32,
                show_progress_bar=False,
                convert_to_tensor=True,
            )
        lengths = _lengths(self.model.tokenizer, [prompt + text for text in texts])
        limit = self.length(role)
        over = [length - limit for length in lengths if limit is not None and length > limit]
        return Encoded(vectors.float().cpu().numpy(), sum(lengths) - sum(over), len(over), sum(over))

    def _plan(self, lengths: Sequence[int]) -> list[list[int]]:
        kind = "cpu" if self.model.device.type == "cpu" else "cuda"
        budget = self.batch_tokens or BUDGETS[kind]
        return plan(lengths, budget, overhead=OVERHEADS[kind], most=self.batch_size)

    def _reader(self, role: Role, instruction: str) -> Callable[[list[str]], Tokens] | None:
        with self._limited(role):
            return reader(self.model, self._before[role] + instruction, self.length(role), role)

    def _prompt(self, role: Role, prefix: str | None, prompt_name: str | None) -> str:
        known = {name: text or "" for name, text in self.model.prompts.items()}
        if prompt_name is not None and prompt_name not in known:
            raise UserError(f"the model has no prompt {prompt_name!r}{near(prompt_name, known)} ({role}_prompt_name)")
        if prefix is None and prompt_name is None:
            return next((known[own] for own in _OWN_PROMPTS[role] if known.get(own)), "")
        return (prefix or "") + (known[prompt_name] if prompt_name is not None else "")

    def _check_settings(self) -> None:
        most = positions(self.model[0])
        for role, length in self._given.items():
            if length is not None and most is not None and length > most:
                raise UserError(f"{role}_length is {length}, but the model has positions for {most} tokens only")
        for setting in ("batch_tokens", "batch_size"):
            size = getattr(self, setting)
            if size is not None and size < 1:
                raise UserError(f"{setting} is {size}; a batch holds at least one")
        if self.autocast and self.model.dtype != torch.float32:
            raise UserError(f"autocast is for float32 weights, and these are {self.settings('query')['dtype']}")
        if self.autocast and not has_bfloat16(self.model.device.type):
            raise UserError(
                f"autocast computes in bfloat16, for which this {self.model.device.type} has no instructions; "
                "leave autocast out"
            )
        if self.autocast and self.model.device.type == "cpu" and not torch.cpu.get_capabilities().get("amx_bf16"):
            logger.warning(
                "%s: this CPU has bfloat16 instructions but no matrix unit (AMX) for them; without one autocast was "
                "slower than float32 where it was measured",
                self.name,
            )

    @contextmanager
    def _limited(self, role: Role) -> Iterator[None]:
        """Hold sentence-transformers to this role's length."""
        own, length = self.model.max_seq_length, self._given[role]
        if length is None:  # a model of word vectors has no length, and none can be set
            yield
            return
        module, attribute = self.model[0], f"{role}_length"
        before = getattr(module, attribute, None)
        self.model.max_seq_length = length
        if before is not None:
            setattr(module, attribute, length)
        try:
            yield
        finally:
            self.model.max_seq_length = own
            if before is not None:
                setattr(module, attribute, before)


def has_bfloat16(device: str) -> bool:
    """Tell whether a kind of device has instructions for bfloat16."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    known = torch.cpu.get_capabilities() if device == "cpu" else {}
    return any(bool(known.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def content(model: SentenceTransformer) -> str:
    """Return the SHA-256 of a model's weights and of its tokenizer."""
    total = hashlib.sha256()
    for key, weight in sorted(model.state_dict().items()):
        total.update(f"{key} {weight.dtype} {tuple(weight.shape)}\n".encode())
        total.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    tokenizer: Any = model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        words = json.loads(backend.to_str())  # how it pads and cuts changes from call to call
        total.update(json.dumps({**words, "padding": None, "truncation": None}, sort_keys=True).encode())
    return total.hexdigest()


def _dims(model: SentenceTransformer) -> int:
    found = model.get_embedding_dimension()
    return int(found) if found is not None else int(model.encode("a first text").shape[-1])


def positions(module: Any) -> int | None:
    """Return how many tokens a network has positions for; RoBERTa's begin behind the padding's."""
    network = getattr(module, "auto_model", None)
    most: int | None = getattr(getattr(network, "config", None), "max_position_embeddings", None)
    for part in network.modules() if most is not None and network is not None else ():
        table, padding = getattr(part, "position_embeddings", None), getattr(part, "padding_idx", None)
        if isinstance(table, torch.nn.Embedding) and isinstance(padding, int):
            return table.num_embeddings - padding - 1
    return most


def _lengths(tokenizer: Any, texts: list[str]) -> list[int]:
    """Return how many tokens texts have, none where the tokenizer is of neither known kind."""
    if hasattr(tokenizer, "encode_batch"):
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    if hasattr(tokenizer, "vocab_files_names"):
        return [len(ids) for ids in tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
    return [0] * len(texts)
