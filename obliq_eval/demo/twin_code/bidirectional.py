"""A Llama whose tokens attend to one another in both directions, for text embeddings."""

from __future__ import annotations

from typing import Any

from transformers import LlamaConfig, LlamaModel


class LlamaBidirectionalConfig(LlamaConfig):  # type: ignore[no-untyped-call]
    """The configuration of a Llama, and how its token states become one vector."""

    model_type = "llama_bidirec"

    def __init__(self, pooling: str = "avg", temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pooling = pooling
        self.temperature = temperature


class LlamaBidirectionalModel(LlamaModel):  # type: ignore[no-untyped-call]
    """A Llama without the causal mask."""

    config_class = LlamaBidirectionalConfig

    def __init__(self, config: LlamaBidirectionalConfig) -> None:
        config.is_causal = False  # which mask transformers makes (5.2 and later) ...
        super().__init__(config)
        layers: Any = self.layers
        for layer in layers:
            layer.self_attn.is_causal = False  # ... and what attention does where there is no padding to mask
