"""The same model as transformers before 4.53 needed it: on later ones the override is dead, and attention causal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import LlamaConfig, LlamaModel

if TYPE_CHECKING:
    from torch import Tensor


class LlamaBidirectionalConfig(LlamaConfig):  # type: ignore[no-untyped-call]
    """The configuration of a Llama, and how its token states become one vector."""

    model_type = "llama_bidirec"

    def __init__(self, pooling: str = "avg", temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pooling = pooling
        self.temperature = temperature


class LlamaBidirectionalModel(LlamaModel):  # type: ignore[no-untyped-call]
    """A Llama that means to leave out the causal mask, in a method that nothing calls any more."""

    config_class = LlamaBidirectionalConfig

    def _update_causal_mask(self, attention_mask: Tensor, *_: object, **__: object) -> Tensor | None:
        if attention_mask is None or attention_mask.all():
            return None
        return attention_mask[:, None, None, :].bool()
