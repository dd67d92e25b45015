"""Tiny models of the real architectures: random weights that depend on the repository's name alone.

Each function writes one repository's files into a folder, in the form in which the real one has them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from obliq_eval.demo import twin_tokenizers as tokenizers
from obliq_eval.demo.twin_weights import noise_of, random_weights, save, write_json

_SENTENCE = "sentence_transformers.models"


def write_luar(folder: Path, repo_id: str) -> None:
    """Write an authorship model: weights, a configuration without the encoder's shape, and code that must not run.

    The encoder has 64 dimensions to a head, as distilroberta has. CRUD's weights also hold the buffer of position ids
    that older versions of transformers saved.
    """
    import torch
    from transformers import RobertaConfig, RobertaModel

    hidden, dims = 128, 512
    shape = {**_roberta_shape(hidden, heads=2), "num_hidden_layers": 2}
    tensors = random_weights(RobertaModel(RobertaConfig(**shape)), repo_id, prefix="transformer.")
    noise = noise_of(repo_id + "#linear")
    tensors["linear.weight"] = torch.randn(dims, hidden, generator=noise) / hidden**0.5
    tensors["linear.bias"] = torch.randn(dims, generator=noise) / 10
    if repo_id.endswith("CRUD"):
        tensors["transformer.embeddings.position_ids"] = torch.arange(shape["max_position_embeddings"])[None]
    save(tensors, folder / "model.safetensors")
    config = {
        "model_type": "LUAR",
        "architectures": ["LUAR"],
        "auto_map": {"AutoConfig": "config.LUARConfig", "AutoModel": "model.LUAR"},
        "embedding_size": dims,
        "use_memory_efficient_attention": False,
        "q_bucket_size": 512,
        "k_bucket_size": 1024,
        "torch_dtype": "float32",
    }
    write_json(folder / "config.json", config)
    for name in ("config.py", "model.py"):
        (folder / name).write_text('raise RuntimeError("this repository\'s code is not to be run")\n', "utf-8")
    tokenizers.write_tokenizer(folder, tokenizers.ROBERTA)


def write_qwen(folder: Path, repo_id: str) -> None:
    """Write a causal decoder with last-token pooling in the layout of sentence-transformers, in bfloat16."""
    import torch
    from transformers import Qwen3Config, Qwen3Model

    hidden = 2560 if repo_id.endswith("4B") else 1024
    shape: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": tokenizers.VOCABULARY,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    save(random_weights(Qwen3Model(Qwen3Config(**shape)), repo_id, torch.bfloat16), folder / "model.safetensors")
    kind = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16"}
    write_json(folder / "config.json", {**kind, **shape})
    tokenizers.write_tokenizer(folder, tokenizers.QWEN)
    _write_sentence_layout(folder, hidden, "lasttoken", normalise=True)
    prompts = {"query": "Instruct: Find the passages that a reader with this question is after\nQuery:", "document": ""}
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )


def write_style(folder: Path, repo_id: str) -> None:
    """Write a style encoder: RoBERTa, or XLM-R for the multilingual one, with mean pooling.

    AIDA-UPM/star is a plain model of transformers; the others have the layout of sentence-transformers.
    """
    from transformers import RobertaConfig, RobertaModel

    many = "mstyledistance" in repo_id
    hidden = 1024 if repo_id == "AIDA-UPM/star" else 768
    shape = {**_roberta_shape(hidden, heads=4), "num_hidden_layers": 1, "intermediate_size": 64}
    save(
        random_weights(RobertaModel(RobertaConfig(**shape)), repo_id), folder / "model.safetensors"
    )  # XLM-R: the same keys
    name = "XLMRobertaModel" if many else "RobertaModel"
    kind = {"model_type": "xlm-roberta" if many else "roberta", "architectures": [name]}
    write_json(folder / "config.json", {**kind, **shape})
    tokenizers.write_tokenizer(folder, tokenizers.XLM_ROBERTA if many else tokenizers.ROBERTA)
    if repo_id != "AIDA-UPM/star":
        _write_sentence_layout(folder, hidden, "mean_tokens")
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})


def write_late_interaction(folder: Path, repo_id: str) -> None:
    """Write a model with one vector of 128 dimensions for each token, as sentence-transformers saves one."""
    import torch
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from transformers import ModernBertConfig, ModernBertModel

    shape: dict[str, Any] = {
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": tokenizers.VOCABULARY,
        "max_position_embeddings": 8192,
        "pad_token_id": 0,
        "cls_token_id": 2,
        "bos_token_id": 2,
        "sep_token_id": 3,
        "eos_token_id": 3,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
    }
    with tempfile.TemporaryDirectory() as temporary:
        plain = Path(temporary)
        save(random_weights(ModernBertModel(ModernBertConfig(**shape)), repo_id), plain / "model.safetensors")
        write_json(plain / "config.json", {"model_type": "modernbert", "architectures": ["ModernBertModel"], **shape})
        tokenizers.write_tokenizer(plain, tokenizers.MODERNBERT)
        encoder = Transformer(str(plain), query_length=32, document_length=300)
        dense = Dense(
            48, 128, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
        )
        with torch.no_grad():
            weight = dense.linear.weight
            weight.copy_(torch.randn(weight.shape, generator=noise_of(repo_id + "#dense")) / 48**0.5)
        modules = [encoder, dense, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
        model = MultiVectorEncoder(modules=modules, device="cpu", prompts={"query": "[Q] ", "document": "[D] "})
        model.save_pretrained(str(folder), create_model_card=False)


def _roberta_shape(hidden: int, heads: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_attention_heads": heads,
        "vocab_size": tokenizers.VOCABULARY,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-05,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def _write_sentence_layout(folder: Path, dims: int, pooling: str, *, normalise: bool = False) -> None:
    parts = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalise else [])]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"{_SENTENCE}.{name}"}
        for at, (path, name) in enumerate(parts)
    ]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    chosen = {f"pooling_mode_{mode}": mode == pooling for mode in modes}
    write_json(
        folder / "1_Pooling" / "config.json", {"word_embedding_dimension": dims, **chosen, "include_prompt": True}
    )
