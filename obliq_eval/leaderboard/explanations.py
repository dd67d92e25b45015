"""What may explain that a measured number is not the reported one: the run's manifest against the reported setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from obliq_eval.data.official import OFFICIAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_eval.manifest import Manifest

OBLIQ_IR = frozenset({"obliq-ir", "obliq-ir-merged", "obliq-ir-no-distillation", "obliq-ir-full"})
CARD = {
    "query_prefix": "query: ",
    "document_prefix": "passage: ",
    "query_length": 256,
    "document_length": 1024,
    "dtype": "bfloat16",
    "pooling": "mean",
    "normalize": True,
}
"""OBLIQ-IR as its model card evaluates it; nothing but the prefix stands before a query."""
QWEN3 = {"dtype": "float16", "pooling": "lasttoken", "normalize": True}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(OBLIQ_IR, CARD),
    "qwen3-embed-0.6b": QWEN3,
    "qwen3-embed-4b": QWEN3,
}
BM25_VARIANTS = {"OBLIQ-Congress": "default", "OBLIQ-WildChat": "okapi"}
"""Which of this project's variants repeats the tokens of a published BM25 row; for other tasks nobody says."""
BM25 = (
    "the published BM25 rows do not share one tokenizer (Congress: the defaults of bm25s; WildChat: Okapi without "
    "stopwords; the others do not say)"
)
QWEN3_PLAIN = (
    "reported without an instruction on this task; mteb's own wrapper of this model puts one before every query"
)
CHUNKS = "the published row may be an artefact of the order in which chunks of embeddings were loaded: it is no target"
ABOUT: Mapping[tuple[str, str], str] = {
    ("gpt-query-rewriter", "OBLIQ-Writing"): CHUNKS,
    ("gpt-multihop", "OBLIQ-Writing"): CHUNKS,
    ("lateon", "OBLIQ-Writing"): "reported with documents of 8,192 tokens, through an approximate index (PLAID)",
    **{(f"qwen3-embed-{s}", f"OBLIQ-{t}"): QWEN3_PLAIN for s in ("0.6b", "4b") for t in ("Writing", "Congress")},
}
ABOUT_SYSTEM: Mapping[str, str] = {
    "lateon": "the paper cites LateOn-Code, which is another model than lightonai/LateOn",
    "gemini-2-embedding": "reported with gemini-embedding-2-preview; a model behind an interface changes unseen",
    "gpt-query-rewriter": "answers of GPT-5.2 at temperature 1 differ from call to call",
    "gpt-multihop": "answers of GPT-5.2 at temperature 1 differ from call to call",
    "oracle-tournament": "answers of GPT-5.2 at temperature 1 differ from call to call, and the shuffle has a seed",
}
LARGE = 0.01
"""A difference above this is no rounding of weights or activations."""
CAUSAL_SINCE = (4, 53)
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"}


def explain(manifest: Manifest, system: str, worst: float) -> tuple[str, ...]:
    """Return what in a run's manifest may explain its differences from the paper, the likeliest first.

    Args:
        manifest: What made the run.
        system: The paper's name of the system.
        worst: The largest absolute difference.
    """
    if manifest.who == "paper":
        own = "this is the authors' own run, scored here: only the scoring, or the choice of the run, can differ"
        return (own, *_answers(manifest))
    told = (*_settings(manifest, system), *_answers(manifest), *_lexical(manifest, system))
    about = (ABOUT.get((system, manifest.task)), ABOUT_SYSTEM.get(system))
    return (*told, *(sentence for sentence in about if sentence), *_machine(manifest, system, worst))


def _settings(manifest: Manifest, system: str) -> Iterator[str]:
    reported, settings = SETTINGS.get(system, {}), manifest.model.settings
    for name, value in reported.items():
        if name in settings and _plain(settings[name]) != value:
            yield f"{name} is {settings[name]!r}, reported with {value!r}"
    if silent := [name for name in reported if name not in settings]:
        yield f"the run's manifest does not say {', '.join(silent)}; reported with " + ", ".join(
            f"{name} {reported[name]!r}" for name in silent
        )
    if settings.get("task_prompt") and system in OBLIQ_IR:
        yield "the task's instruction stands before the queries; reported with the prefix alone"


def _answers(manifest: Manifest) -> Iterator[str]:
    if manifest.model.settings.get("reranked"):
        yield "the run reranks the candidates of another run"
    if OFFICIAL[manifest.task].excludes and not manifest.data.exclusions:
        yield "the run does not say that each query's excluded documents were left out"
    if manifest.unanswered:
        yield (
            f"{len(manifest.unanswered)} queries got no answer and count as 0; the benchmark authors' code leaves "
            "such queries out of the mean"
        )


def _lexical(manifest: Manifest, system: str) -> Iterator[str]:
    if system != "bm25":
        return
    variant, published = manifest.model.settings.get("variant"), BM25_VARIANTS.get(manifest.task)
    if published is not None and variant != published:
        yield f"this run's tokens are those of variant {variant!r}; the published row's are those of {published!r}"
    yield BM25


def _machine(manifest: Manifest, system: str, worst: float) -> Iterator[str]:
    if system not in OBLIQ_IR:
        return
    if worst > LARGE and _version(manifest.versions.get("transformers", "")) >= CAUSAL_SINCE:
        yield (
            "with transformers 4.53 and later the base model's own code may attend to earlier tokens only: check that "
            "another last token changes the first token's hidden state"
        )
    yield (
        f"exact numbers are stated for identical hardware alone (timings are of one H100); this run: "
        f"{manifest.hardware or 'machine not known'}"
    )


def _plain(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    short = value.removeprefix("torch.")
    return DTYPES.get(short, short)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
