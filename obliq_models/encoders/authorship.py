"""Texts into vectors of authorship: each text is cut into windows, and the windows are read as one author's texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, normalize
from torch.nn.utils.rnn import pad_sequence

from obliq_eval.errors import UserError, raise_all
from obliq_models.encoders.base import Encoded, Encoder
from obliq_models.encoders.batching import plan
from obliq_models.encoders.sentence import AGREE, BUDGETS, FIRST_TEXTS, OVERHEADS, SLICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokenizers import Tokenizer

    from obliq_models.encoders.base import Role
    from obliq_models.encoders.luar import Luar


class LuarEncoder(Encoder):
    """LUAR over a text's first windows, which follow one another without overlap.

    Queries and documents are read alike. Vectors have unit length, so that their product is the cosine. What lies
    behind the last window is not read, and is counted.

    Args:
        network: With its weights.
        tokenizer: The checkpoint's own; its truncation and padding are set here.
        name: Full name of the model.
        revision: What identifies its weights.
        window: Tokens of one window, special tokens included.
        episode: Most windows of one text.
        batch_tokens: Padded tokens in a batch; by default by the kind of device.

    Raises:
        UserError: If the window is longer than the transformer's positions or has no room for a word, or if an
            episode or a batch is to be empty; all problems at once.
    """

    def __init__(
        self,
        network: Luar,
        tokenizer: Tokenizer,
        name: str,
        revision: str | None,
        *,
        window: int = 512,
        episode: int = 1,
        batch_tokens: int | None = None,
    ) -> None:
        super().__init__(name, revision, network.linear.out_features)
        config, special = network.transformer.config, tokenizer.num_special_tokens_to_add(is_pair=False)
        pad = config.pad_token_id or 0
        longest = config.max_position_embeddings - pad - 1  # RoBERTa counts positions from the padding's id on
        problems = []
        if not special < window <= longest:
            problems.append(f"window is {window}, but must be from {special + 1} to {longest} tokens")
        if episode < 1:
            problems.append(f"episode is {episode}, but must be at least 1 window")
        if batch_tokens is not None and batch_tokens < 1:
            problems.append(f"batch_tokens is {batch_tokens}; a batch holds at least one")
        raise_all(problems, name)
        tokenizer.no_padding()
        tokenizer.enable_truncation(window)
        self.network, self.tokenizer, self.batch_tokens = network.eval(), tokenizer, batch_tokens
        self.window, self.episode, self._special, self._pad = window, episode, special, pad

    def settings(self, role: Role) -> Mapping[str, Any]:  # noqa: ARG002 -- queries and documents are read alike
        """Return the windowing and the type of the transformer's weights."""
        return {
            "window": self.window,
            "episode": self.episode,
            "dtype": str(self.network.transformer.dtype).removeprefix("torch."),
            "normalize": True,
        }

    @torch.inference_mode()
    def run(self, texts: Sequence[str], role: Role, instruction: str) -> Encoded:  # noqa: ARG002 -- as above
        """Encode; an instruction is read as the beginning of the text."""
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))  # a slice holds texts of about one length
        vectors = np.zeros((len(texts), self.dims), np.float32)
        tokens = cut = lost = 0
        for first in range(0, len(order), SLICE):
            rows = order[first : first + SLICE]
            found = self._slice([instruction + texts[row] for row in rows])
            vectors[rows] = found.vectors
            tokens, cut, lost = tokens + found.tokens, cut + found.cut, lost + found.lost
        return Encoded(vectors, tokens, cut, lost)

    @torch.inference_mode()
    def check(self) -> None:
        """Encode first texts, alone and together.

        Raises:
            UserError: If a text alone and padded beside a longer one does not have one and the same state.
        """
        self.encode(FIRST_TEXTS, "document")
        windows = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(FIRST_TEXTS))]
        alone = torch.cat([self._states(windows, [row]) for row in range(len(windows))])
        cosine = float(cosine_similarity(alone, self._states(windows, range(len(windows)))).min())
        least = AGREE[self.network.transformer.dtype == torch.float32]
        if not cosine >= least:  # NaN included
            raise UserError(
                f"{self.name}: a text alone and the same beside a longer one give states of cosine {cosine:.4f}, not "
                f"{least}; look at the pad token of config.json"
            )

    def _slice(self, texts: list[str]) -> Encoded:
        read: list[list[int]] = []
        counts: list[int] = []
        cut = lost = 0
        for encoding in self.tokenizer.encode_batch_fast(texts):
            windows = [encoding, *encoding.overflowing]
            behind = windows[self.episode :]
            read += [window.ids for window in windows[: self.episode]]
            counts.append(len(windows) - len(behind))
            cut += bool(behind)
            lost += sum(len(window.ids) - self._special for window in behind)
        states = pad_sequence(list(torch.split(self._means(read), counts)), batch_first=True)
        vectors = normalize(self.network.authors(states, _first(counts, states)), dim=1)
        return Encoded(vectors.cpu().numpy(), sum(map(len, read)), cut, lost)

    def _means(self, windows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return each window's mean state, in the order of the windows."""
        linear = self.network.linear
        states = torch.empty(len(windows), linear.in_features, device=linear.weight.device)
        kind = "cpu" if states.device.type == "cpu" else "cuda"
        budget = self.batch_tokens or BUDGETS[kind]
        for rows in plan([len(window) for window in windows], budget, overhead=OVERHEADS[kind]):
            states[torch.tensor(rows, device=states.device)] = self._states(windows, rows)
        return states

    def _states(self, windows: Sequence[Sequence[int]], rows: Sequence[int]) -> torch.Tensor:
        """Return the mean states of these windows, read as one batch."""
        parts = [torch.tensor(windows[row]) for row in rows]
        device = self.network.linear.weight.device
        ids = pad_sequence(parts, batch_first=True, padding_value=self._pad).to(device)
        return self.network.texts(ids, _first([len(part) for part in parts], ids).long())


def _first(counts: Sequence[int], padded: torch.Tensor) -> torch.Tensor:
    """Return the mask of the first so many columns in each row, bool, shape (rows, columns)."""
    columns = torch.arange(padded.shape[1], device=padded.device)
    return columns < torch.tensor(counts, device=padded.device).unsqueeze(1)
