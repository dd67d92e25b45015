"""The agents of the table of models: a language model of one's choice over any retriever."""

from __future__ import annotations

from typing import Any

from obliq_eval.catalogue import ModelEntry

RETRIEVER = "gemini-2-embedding"
"""What the benchmark's authors searched with."""

_FACTS: dict[str, Any] = {
    "revision": "1",
    "kind": "pipeline",
    "extra": "openai",
    "licence": "apache-2.0 for the code; the terms of the retriever and of the language model hold as well",
    "memory": "that of the retriever, and of the language model where it runs in this process",
}
_SENT = "queries and the documents that are found are sent to the language model's server"
_PRESUMED = (
    "the benchmark's authors asked GPT-5.2 at temperature 1; their prompts are not published, so these are written "
    "here, and $OBLIQ_LLM says which model is asked"
)
_ORACLE = (
    "an oracle: it is told which documents are judged, so it is a ceiling and no retriever, and its numbers are not to "
    f"be compared with a retriever's; {_SENT}"
)
_ORACLE_PRESUMED = (
    f"{_PRESUMED}; which three retrievers filled their pool, and to what depth, is not stated: here it is one, and 100 "
    "documents of it"
)

AGENTS: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="obliq/gpt-query-rewriter",
        alias="gpt-query-rewriter",
        loader="obliq_models.agents.rewriter:load",
        summary="A language model rewrites each query once, then a retriever searches; 1 call for each query",
        settings={"retriever": RETRIEVER},
        risk="queries are sent to the language model's server",
        presumed=_PRESUMED,
        paper_row="gpt-query-rewriter",
        **_FACTS,
    ),
    ModelEntry(
        name="obliq/gpt-multihop",
        alias="gpt-multihop",
        loader="obliq_models.agents.multihop:load",
        summary="A language model searches in 4 hops of 25 documents, reads, takes notes, and orders what it selected; "
        "9 calls and at most 100 documents for each query",
        settings={"retriever": RETRIEVER, "hops": 4, "per_hop": 25, "document_tokens": 1024},
        risk=_SENT,
        presumed=_PRESUMED,
        paper_row="gpt-multihop",
        **_FACTS,
    ),
    ModelEntry(
        name="obliq/oracle-tournament",
        alias="oracle-tournament",
        loader="obliq_models.agents.oracle:load",
        summary="Oracle, shown which documents are judged: a language model ranks a pool that holds all of them, batch "
        "by batch; a ceiling, not a retriever",
        settings={"retriever": RETRIEVER, "depth": 100, "seed": 0, "document_tokens": 1024},
        risk=_ORACLE,
        presumed=_ORACLE_PRESUMED,
        paper_row="oracle-tournament",
        **_FACTS,
    ),
    ModelEntry(
        name="obliq/oracle-tournament-with-solutions",
        alias="oracle-tournament-with-solutions",
        loader="obliq_models.agents.oracle:load",
        summary="Oracle, shown which documents are judged, and their solutions, which a model file has to name; the "
        "same tournament: a ceiling, not a retriever",
        settings={"retriever": RETRIEVER, "depth": 100, "seed": 0, "document_tokens": 1024, "solutions": ""},
        risk=_ORACLE,
        presumed=_ORACLE_PRESUMED,
        paper_row="oracle-tournament-with-solutions",
        **_FACTS,
    ),
)
