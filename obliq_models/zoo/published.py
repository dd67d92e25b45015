"""Published retrievers as the benchmark's authors ran them."""

from __future__ import annotations

from typing import Any

from obliq_eval.catalogue import ModelEntry
from obliq_models.pins import PINS

_INSTRUCT = "Instruct: {}\nQuery: "
_QWEN_SETTINGS: dict[str, Any] = {
    "dtype": "float16",
    "instructions": {
        task: _INSTRUCT.format(told)
        for task, told in {
            "OBLIQ-Twitter": "Given a description of a stance, retrieve posts that take it without saying so",
            "OBLIQ-WildChat": "Given a way in which an assistant fails, retrieve conversations where it happens",
            "OBLIQ-Math": "Given a mathematical problem, retrieve problems that yield to the same technique",
        }.items()
    },
    "document_lengths": {"OBLIQ-Congress": 8192},
}
_QWEN_FACTS: dict[str, Any] = {
    "loader": "obliq_models.retrievers.published:load",
    # The model's own prompt would otherwise be put before the queries of every task.
    "query_prefix": "",
    "document_prefix": "",
    "licence": "apache-2.0",
    "base_licence": "apache-2.0",
    "data_licence": "not published",
    "presumed": (
        "the benchmark's authors put an instruction before the queries of Twitter, WildChat and Math, and none on "
        "Congress and Writing; their wording is not published, so these instructions are written here"
    ),
}

PUBLISHED: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="obliq/Qwen3-Embedding-0.6B",
        alias="qwen3-embed-0.6b",
        revision=PINS["Qwen/Qwen3-Embedding-0.6B"] or "main",
        summary="Qwen3-Embedding-0.6B as the benchmark's authors ran it; mteb's own settings are at its full name",
        base="Qwen/Qwen3-0.6B-Base",
        settings={"repo": "Qwen/Qwen3-Embedding-0.6B", **_QWEN_SETTINGS},
        dims=1024,
        n_parameters=595_776_512,
        memory="1.2 GB of weights in float16, 4 KB for each document; reads 32,768 tokens of one, on Congress 8,192",
        paper_row="qwen3-embed-0.6b",
        **_QWEN_FACTS,
    ),
    ModelEntry(
        name="obliq/Qwen3-Embedding-4B",
        alias="qwen3-embed-4b",
        revision=PINS["Qwen/Qwen3-Embedding-4B"] or "main",
        summary="Qwen3-Embedding-4B as the benchmark's authors ran it; mteb's own settings are at its full name",
        base="Qwen/Qwen3-4B-Base",
        settings={"repo": "Qwen/Qwen3-Embedding-4B", **_QWEN_SETTINGS},
        dims=2560,
        n_parameters=4_021_774_336,
        memory="8 GB of weights in float16, 10 KB for each document; reads 32,768 tokens of one, on Congress 8,192",
        paper_row="qwen3-embed-4b",
        **_QWEN_FACTS,
    ),
    ModelEntry(
        name="obliq/LateOn",
        alias="lateon",
        loader="obliq_models.retrievers.late:load",
        revision=PINS["lightonai/LateOn"] or "main",
        kind="late-interaction",
        summary="LateOn, one vector for each token, scored by exact MaxSim without an index",
        licence="apache-2.0",
        base="answerdotai/ModernBERT-base",
        base_licence="apache-2.0",
        settings={"repo": "lightonai/LateOn", "document_lengths": {"OBLIQ-Writing": 8192}},
        dims=128,
        n_parameters=149_015_808,
        memory=(
            "0.6 GB of weights; token vectors are held for about a million tokens at a time (0.5 GB), whatever the "
            "corpus, and are not stored: every search encodes the corpus again"
        ),
        presumed=(
            "the paper cites LateOn-Code, a different model; the benchmark's authors ran LateOn through PLAID, which "
            "is approximate, with documents of 8,192 tokens on Writing and the model's own length elsewhere"
        ),
        paper_row="lateon",
    ),
    ModelEntry(
        name="obliq/gemini-embedding-2",
        alias="gemini-2-embedding",
        loader="obliq_models.encoders.gemini:load",
        revision="1",
        summary="Gemini Embedding 2 through Google's API; needs GEMINI_API_KEY, and every text is paid for once",
        licence="proprietary: the Gemini API Additional Terms of Service",
        settings={"server_model": "gemini-embedding-2", "dimensions": 3072, "task_as": "parameter"},
        extra="gemini",
        dims=3072,
        served=True,
        memory="12 KB for each document; the service reads 8,192 tokens of a text and does not say when it has cut one",
        risk="every document and query is sent to Google; the model behind the name can change",
        presumed=(
            "the benchmark's authors ran gemini-embedding-2-preview, which this model has superseded; that it heeds "
            'the task type they sent is not known (task_as = "text" puts the task into the text)'
        ),
        paper_row="gemini-2-embedding",
    ),
)
