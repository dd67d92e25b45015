"""vLLM in this process (`obliq[vllm]`); `vllm serve` behind `OpenAIBackend` is the usual way.

Written against the documented interface of vLLM 0.12 and later (`LLM.chat`, `SamplingParams`,
`StructuredOutputsParams`) and tested against a complete fake of it. It has not been run with vLLM itself.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import MissingExtraError
from obliq_models.llm.protocol import STOP, CallError, Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GATHER = 0.02  # seconds in which requests come together before the first batch


class VllmBackend:
    """Answers requests in batches: all that came in while the last batch was being answered.

    Args:
        model: Name or folder of the model; requests must name the same.
        revision: Its revision on the hub.
        template: Arguments of the chat template, such as `{"enable_thinking": False}`.
        engine: Further arguments of `vllm.LLM`, such as `tensor_parallel_size`.

    Raises:
        MissingExtraError: If vLLM is not installed.
    """

    name = "vllm"

    def __init__(
        self, model: str, *, revision: str | None = None, template: Mapping[str, Any] | None = None, **engine: Any
    ) -> None:
        try:
            vllm: Any = importlib.import_module("vllm")
        except ImportError as error:
            raise MissingExtraError("vllm", "vllm", "running a language model with vLLM in this process") from error
        self.counts: dict[str, int] = {}
        self.model = model
        self._settings = {"revision": revision, "template": dict(template or {}), "dtype": engine.get("dtype", "auto")}
        self._template = dict(template or {})
        self._llm = vllm.LLM(model=model, revision=revision, **engine)
        self._queue: list[tuple[Request, asyncio.Future[Response]]] = []
        self._worker: asyncio.Task[None] | None = None

    def settings(self) -> Mapping[str, Any]:
        """Return the revision, the template's arguments and the dtype."""
        return self._settings

    async def complete(self, request: Request) -> Response:
        """Answer one request together with those that come in at the same time."""
        if request.model != self.model:
            raise CallError(f"vLLM in this process runs {self.model!r}, not {request.model!r}")
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._queue.append((request, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Stop taking requests; vLLM gives its memory back when the process ends."""
        if self._worker is not None:
            self._worker.cancel()

    async def _work(self) -> None:
        await asyncio.sleep(GATHER)
        while self._queue:
            batch = [(request, future) for request, future in self._queue if not future.done()]
            self._queue.clear()
            found = await asyncio.to_thread(self._answer, [request for request, _ in batch])
            for (_, future), answer in zip(batch, found, strict=True):
                if future.done():  # whoever asked has gone
                    continue
                if isinstance(answer, Response):
                    future.set_result(answer)
                else:
                    future.set_exception(answer)

    def _answer(self, requests: Sequence[Request]) -> list[Response | CallError]:
        """Return one answer or error per request; one that vLLM refuses takes no other down with it."""
        if not requests:
            return []
        try:
            outputs = self._llm.chat(
                [request.chat() for request in requests],
                sampling_params=[_sampling(request) for request in requests],
                use_tqdm=False,
                chat_template_kwargs=self._template or None,
            )
        except Exception as error:  # whatever it is, it belongs to one of the requests
            if len(requests) > 1:
                return [answer for request in requests for answer in self._answer([request])]
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            return [CallError(f"vLLM could not answer {requests[0].told()}: {why}")]
        return [_response(request, output) for request, output in zip(requests, outputs, strict=True)]


def _sampling(request: Request) -> Any:
    params: Any = importlib.import_module("vllm.sampling_params")
    held = None if request.schema is None else params.StructuredOutputsParams(json=dict(request.schema))
    return params.SamplingParams(
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        seed=request.sent_seed,
        structured_outputs=held,
    )


def _response(request: Request, output: Any) -> Response:
    best = output.outputs[0]
    read, written = len(output.prompt_token_ids or ()), len(best.token_ids)
    return Response(best.text, best.finish_reason or STOP, read, written, request.model)
