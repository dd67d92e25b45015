"""The commit of every repository that the zoo loads from, where it is known; plain data, and nothing is imported.

A repository without a known commit loads from `main`, and the commit that it resolved to is recorded with the run.
"""

from __future__ import annotations

PINS: dict[str, str | None] = {
    # The cards of the paper's models name no commit.
    "nvidia/llama-nv-embed-reasoning-3b": None,
    "DataScience-UIBK/OBLIQ-IR-3B-LoRA": None,
    "DataScience-UIBK/OBLIQ-IR-3B": None,
    # Three commits of LUAR-MUD are in use elsewhere; which one the paper used is not stated. Of these only this one
    # holds safetensors (the hub's own conversion, merged into main as 51b0d9ecec5336314e02f191dd8ca4acc0652fe1);
    # 6bbc5d9bd99209d2e63604f18e60e519838f74c5 and 376029ba913b47405679b74a0b32c32ab063355a hold a pickle alone.
    "rrivera1849/LUAR-MUD": "291977a835e44609467b34cd9ad311aa697cdda8",
    # The one commit in use elsewhere, 9031ba45529bd31752e85311bb8db47c899c2b83, holds a pickle alone. `main` has
    # safetensors since; the full name of that commit is not known.
    "rrivera1849/LUAR-CRUD": None,
    # mteb 2.26.24 evaluates these three at these commits (`mteb.get_model_meta(name).revision`).
    "Qwen/Qwen3-Embedding-0.6B": "b22da495047858cce924d27d76261e96be6febc0",
    "Qwen/Qwen3-Embedding-4B": "636cd9bf47d976946cdbb2b0c3ca0cb2f8eea5ff",
    "lightonai/LateOn": "6bb4488a7a1f1769f7a69fa1ff0c74c6a7b98cbd",
    # What public code that loads these is pinned to. Style-Embedding holds a pickle alone, the others safetensors.
    "AnnaWegmann/Style-Embedding": "d7d0f5ca829316a8f5695e49dfce80b86db5e76c",
    "StyleDistance/styledistance": "b7df5f0b0480773c097ba3121d83ca32b71015ca",
    "StyleDistance/mstyledistance": "d66ed25e48225a503b21a65bc804caf06c886f96",
    # No commit is known from a source that was checked.
    "AIDA-UPM/star": None,
}
