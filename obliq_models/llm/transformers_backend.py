"""A causal language model in this process, through transformers: slow, simple, one request at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.derived import fingerprint
from obliq_models.llm.protocol import LENGTH, STOP, CallError, Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


class TransformersBackend:
    """Runs a model with its chat template; for anything large, `vllm serve` is many times faster.

    Requests are answered one at a time, so that an answer never depends on what stands beside it in a batch. It
    cannot hold a model to a schema: the strict parser reads what comes.

    Args:
        model: Name on the hub, or folder; requests must name the same.
        revision: Revision on the hub.
        template: Arguments of the chat template, such as `{"enable_thinking": False}`.
        device: Such as `cuda`; by default the GPU if there is one.
        dtype: Of the weights, such as `bfloat16`; by default that of the checkpoint.

    Raises:
        UserError: If the model cannot be loaded or has no chat template.
    """

    name = "transformers"

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        template: Mapping[str, Any] | None = None,
        device: str | None = None,
        dtype: str = "auto",
    ) -> None:
        import torch
        import transformers

        library: Any = transformers
        try:
            self._tokenizer = library.AutoTokenizer.from_pretrained(model, revision=revision)
            self._model = library.AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype=dtype)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot load the language model {model!r}: {str(error).splitlines()[0]}") from error
        if not self._tokenizer.chat_template:
            raise UserError(f"the model {model!r} has no chat template: choose one that was tuned to instructions")
        self._model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._model.eval()
        self.model = model
        self.counts: dict[str, int] = {}
        folder = Path(model)
        identity = fingerprint(folder) if folder.is_dir() else revision
        self._template = dict(template or {})
        self._settings = {"revision": identity, "template": self._template, "dtype": str(self._model.dtype)}
        self._worker = ThreadPoolExecutor(1, "obliq-transformers")

    def settings(self) -> Mapping[str, Any]:
        """Return the revision (a folder's is the hash of its content), the template's arguments and the dtype."""
        return self._settings

    async def complete(self, request: Request) -> Response:
        """Answer one request; the model stops within a token when the caller is cancelled."""
        if request.model != self.model:
            raise CallError(f"transformers in this process runs {self.model!r}, not {request.model!r}")
        gone = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, self._answer, request, gone)
        finally:
            gone.set()

    async def close(self) -> None:
        """Do nothing: the memory is given back with the object."""

    def count(self, text: str) -> int:
        """Return the tokens of a text, for an estimate."""
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _answer(self, request: Request, gone: threading.Event) -> Response:
        import torch

        ids = self._prompt(request)
        sampled = request.temperature > 0
        how: dict[str, Any] = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if sampled else {}
        seed = request.sent_seed if sampled else None
        with torch.inference_mode(), torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=sampled,
                max_new_tokens=request.max_tokens,
                pad_token_id=self._tokenizer.pad_token_id or 0,
                stopping_criteria=[lambda tokens, *_, **__: torch.full((len(tokens),), gone.is_set())],
                **how,
            )
        written = output[0, ids.shape[1] :]
        text = self._tokenizer.decode(written, skip_special_tokens=True)
        ended = len(written) < request.max_tokens or int(written[-1]) in self._ends()
        return Response(text, STOP if ended else LENGTH, ids.shape[1], len(written), request.model)

    def _prompt(self, request: Request) -> torch.Tensor:
        found = self._tokenizer.apply_chat_template(
            request.chat(),
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
            **self._template,
        )
        ids: torch.Tensor = found["input_ids"].to(self._model.device)
        longest = getattr(self._model.config, "max_position_embeddings", None)
        if longest is not None and ids.shape[1] + request.max_tokens > longest:
            raise CallError(
                f"the prompt for {request.told()} has {ids.shape[1]:,} tokens, which with an answer of "
                f"{request.max_tokens:,} is more than the {longest:,} that {self.model!r} holds: show fewer or shorter "
                "documents"
            )
        return ids

    def _ends(self) -> set[int]:
        found = self._model.generation_config.eos_token_id
        return set(found) if isinstance(found, list) else {found} - {None}
