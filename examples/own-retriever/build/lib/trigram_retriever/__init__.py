"""A retriever of one's own: what it is called and where its code is."""

from __future__ import annotations

from obliq_eval.catalogue import ModelEntry

ENTRY = ModelEntry(
    name="example/trigram",
    alias="trigram",
    loader="trigram_retriever.retriever:load",
    revision="1",
    kind="lexical",
    summary="Character trigrams weighted by TF-IDF",
    licence="apache-2.0",
    n_parameters=0,
)
