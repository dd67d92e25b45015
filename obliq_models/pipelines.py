"""Retrieve, then rerank, as one model of mteb: `A+B` after `-m`, and OBLIQ-IR with the paper's policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import ModelEntry, resolve, to_meta
from obliq_eval.errors import UserError, near
from obliq_models import policies
from obliq_models.derived import fingerprint
from obliq_models.llm.settings import LLMSettings
from obliq_models.policies import Policy
from obliq_models.rerankers.steps import FORMS, Step, parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import datasets

    from obliq_eval.catalogue import Origin
    from obliq_models.llm.client import Client
    from obliq_models.rerankers.base import Reranker

LOADER = "obliq_models.pipelines:load"
_FIRST = (
    "name", "alias", "loader", "revision", "kind", "settings", "dims", "query_length", "document_length",
    "query_prefix", "document_prefix",
)  # fmt: skip
"""What of an entry is needed to load its model again."""


def is_pipeline(text: str) -> bool:
    """Tell whether a text after `-m` means a retriever and a reranker, and not a file or folder with a plus sign."""
    first, plus, second = text.rpartition("+")
    if not plus:
        return False
    try:
        return not any(Path(path).exists() for path in (text, text.partition("@")[2]) if path)
    except (OSError, ValueError):
        return bool(first or second)


def halves(text: str) -> tuple[str, str]:
    """Return retriever and reranker of `A+B`: of several plus signs the last one divides.

    Raises:
        UserError: If one of them is missing.
    """
    first, _, second = text.rpartition("+")
    if not first.strip() or not second.strip():
        raise UserError(f"{text!r} does not name a retriever and a reranker: write A+B, as in minilm+listwise")
    return first.strip(), second.strip()


def second_of(text: str) -> Step | Policy:
    """Return the reranker or the policy that a text means.

    Raises:
        UserError: If it means none.
    """
    if text.endswith(".toml") or text in policies.names():
        return policies.load(text)
    if "/" not in text and text.partition("-")[0] not in {"identity", "listwise", "tourrank"}:
        known = (*policies.names(), "identity", "listwise", "tourrank")
        raise UserError(
            f"no reranker and no policy is called {text!r}{near(text, known)} (known: {FORMS}; a policy file ending "
            f"in .toml; the policies {', '.join(policies.names())})"
        )
    return parse(text)


def entry(first: ModelEntry, second: str) -> ModelEntry:
    """Return the model that retrieves with one model and reranks with what a text names.

    Its name says what it does, a policy by its content; the revision covers the retriever, the reranker with its
    prompts, and the language model.

    Args:
        first: The retriever.
        second: A reranker (`listwise`, `tourrank-y1`, a cross-encoder's full name) or a policy (its name or file).

    Raises:
        UserError: If the reranker is unknown, or the environment's settings of the language model are wrong.
    """
    then = second_of(second)
    alias = f"{first.alias}-then-{name_of(then)}"
    return described(first, then, LLMSettings.read(), f"local/{alias}", alias)


def full(dense: ModelEntry) -> ModelEntry:
    """Return OBLIQ-IR with the paper's policy, asking the language model that the environment names now."""
    try:
        llm = LLMSettings.read()
    except UserError:  # told when the model is loaded: the table of models must be readable all the same
        llm = LLMSettings()
    return described(
        dense,
        policies.load("paper"),
        llm,
        "obliq/OBLIQ-IR-full",
        "obliq-ir-full",
        summary="OBLIQ-IR, then the paper's policy: TourRank of five tournaments on Twitter, Math and Congress, for "
        "which it asks a language model ($OBLIQ_LLM; the paper's is Qwen3.6-27B), identity on Writing",
        paper_row="obliq-ir-full",
    )


def described(
    first: ModelEntry, then: Step | Policy, llm: LLMSettings, name: str, alias: str, **facts: Any
) -> ModelEntry:
    """Return the entry of a pipeline under a name; facts such as its licence are the retriever's unless given."""
    settings: dict[str, Any] = {
        "first": _table(first),
        "then": {"policy": then.table(), "name": then.name} if isinstance(then, Policy) else then.table(),
    }
    if needs_llm(then):
        settings["llm"] = llm.answering()
    return replace(
        first,
        name=name,
        alias=alias,
        loader=LOADER,
        revision=revision_of(first.name, first.revision, then, llm),
        kind="pipeline",
        summary=facts.pop("summary", f"{first.alias}, then {name_of(then)}"),
        settings=settings,
        query_prefix=None,
        document_prefix=None,
        query_length=None,
        document_length=None,
        dims=None,
        paper_row=facts.pop("paper_row", None),
        meta=None,
        **facts,
    )


def name_of(then: Step | Policy) -> str:
    """Return what a reranker does in a name: `tourrank-y5`, or a policy's content hash."""
    return f"policy-{then.content[:8]}" if isinstance(then, Policy) else then.name


def needs_llm(then: Step | Policy) -> bool:
    """Return whether a language model may be asked."""
    return any(step.needs_llm for step in (then.steps.values() if isinstance(then, Policy) else (then,)))


def revision_of(name: str, revision: str | None, then: Step | Policy, llm: LLMSettings) -> str:
    """Return a hash over everything that can change a pipeline's answers."""
    steps = tuple(then.steps.values()) if isinstance(then, Policy) else (then,)
    told: dict[str, Any] = {
        "first": [name, revision],
        "then": then.table(),
        "prompts": sorted({used for step in steps for used in _prompts(step)}),
        "llm": llm.answering() if needs_llm(then) else None,
    }
    if weights := [fingerprint(Path(step.model)) for step in steps if step.model and Path(step.model).is_dir()]:
        told["weights"] = weights
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def load(
    name: str,  # noqa: ARG001 -- a loader's form
    revision: str | None = None,  # noqa: ARG001
    *,
    first: Mapping[str, Any],
    then: Mapping[str, Any],
    llm: Mapping[str, Any] | None = None,
    device: str | None = None,
    **_: object,
) -> Pipeline:
    """Load the retriever; the language model's server is not asked anything yet.

    Args:
        name: Full name of the pipeline.
        revision: Hash over its parts.
        first: The retriever's entry.
        then: Table of the step, or `policy` with the steps by task.
        llm: What of the language model's settings changes answers; the environment says the rest.
        device: Where the retriever and a cross-encoder run.

    Raises:
        UserError: If a part cannot be loaded, or a language model is needed and none is named.
    """
    if "policy" in then:
        second: Step | Policy = policies.from_table({"tasks": then["policy"]}, str(then["name"]), str(then["name"]))
    else:
        second = Step.of(then)
    settings = LLMSettings.read()
    if llm is not None:
        settings = settings.with_answering(llm)
    if isinstance(second, Step) and second.needs_llm:
        settings.check()
    try:
        known = resolve(str(first["name"]))
        found = known if known.revision == first["revision"] else ModelEntry(**dict(first))
    except UserError:
        found = ModelEntry(**dict(first))
    return Pipeline(to_meta(found).load_model(device=device), second, settings, alias=found.alias, device=device)


class Pipeline:
    """A retriever whose first documents are put into another order (mteb's `SearchProtocol`).

    The pool is what the retriever returns after exclusions. Whether a language model can be asked is found out before
    anything is encoded.

    Args:
        retriever: Any model that mteb can search with.
        then: The reranker, or a policy that has one for each task.
        llm: The language model.
        alias: What the retriever is called in the counts.
        device: Where a cross-encoder runs.
        client: What asks the language model; by default one is opened when it is first needed.
    """

    accepts_exclusions = True
    mteb_model_meta: Any = None
    origin: Origin | None = None

    def __init__(
        self,
        retriever: Any,
        then: Step | Policy,
        llm: LLMSettings | None = None,
        *,
        alias: str = "retriever",
        device: str | None = None,
        client: Client | None = None,
    ) -> None:
        from obliq_models.retrievers.fusion import Part

        self.retriever, self.then, self.llm = retriever, then, llm or LLMSettings()
        self.counts: dict[str, int] = {}
        self._alias, self._device, self._client = alias, device, client
        self._part = Part(retriever)
        self._rerankers: dict[Step, Reranker] = {}
        self._corpus: datasets.Dataset | None = None

    def index(self, corpus: datasets.Dataset, *, task_metadata: Any = None, **kwargs: Any) -> None:
        """Index the corpus with the retriever, after the reranker for the task has been made ready.

        Raises:
            UserError: If the policy has no step for the task, or the reranker cannot be had.
        """
        self.reranker(_task(task_metadata), task_metadata)
        self._part.index(corpus, task_metadata=task_metadata, **kwargs)
        self._corpus = corpus

    def search(
        self,
        queries: datasets.Dataset,
        *,
        top_k: int,
        task_metadata: Any = None,
        top_ranked: Mapping[str, list[str]] | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Retrieve, rerank the first documents, and return the best `top_k`.

        Raises:
            UserError: If the retriever fails, or the reranking is refused (see `rerankers.stage.rerank`).
        """
        from obliq_eval.analyses.cost import Stage, stage_counts
        from obliq_eval.records import Run
        from obliq_models.rerankers import stage
        from obliq_models.rerankers.progress import watch

        if self._corpus is None:
            raise UserError("a pipeline has to index a corpus before it searches")
        reranker = self.reranker(_task(task_metadata), task_metadata)
        depth = max(top_k, reranker.pool)
        started = perf_counter()
        found = self._part.search(queries, top_k=depth, task_metadata=task_metadata, top_ranked=top_ranked, **kwargs)
        seconds = perf_counter() - started
        texts = dict(zip(queries["id"], _texts(queries), strict=True))
        run = Run.of(found, depth)
        given = stage.pools(run, texts, self._corpus, _task(task_metadata), reranker.pool)
        staged = stage.rerank(given, reranker, watch=watch)
        own = dict(getattr(self.retriever, "counts", {}))
        self.counts = own | stage_counts(Stage(self._alias, len(texts), seconds, calls=0)) | staged.counts
        return staged.run.without({}, top_k).to_dict()

    def reranker(self, task: str, metadata: Any = None) -> Reranker:
        """Return the reranker for a task, made when it is first asked for."""
        step = self.then.step(task) if isinstance(self.then, Policy) else self.then
        if step not in self._rerankers:
            if step.needs_llm and self._client is None:
                self._client = self.llm.open()
            self._rerankers[step] = step.build(self.llm, self._client, self._device)
        found = self._rerankers[step]
        if step.reranker == "cross-encoder":
            found = replace(found, task=metadata)  # type: ignore[type-var]
        return found


def _table(first: ModelEntry) -> dict[str, Any]:
    """Return what loads the retriever again, as JSON values."""
    found = {key: getattr(first, key) for key in _FIRST}
    return {key: dict(value) if key == "settings" else value for key, value in found.items() if value is not None}


def _prompts(step: Step) -> list[str]:
    """Return the prompts that a step may use, each with its revision."""
    from obliq_models import prompts

    if not step.needs_llm:
        return []
    one = step.load_prompt()
    if one is not None:
        return [f"{one.name}@{one.revision}"]
    if step.reranker == "tourrank":
        found = ["tourrank"]
    else:
        found = [name for name in prompts.names() if name.partition("-")[0] == "listwise" and "strict" not in name]
    return [f"{name}@{prompts.load(name).revision}" for name in found]


def _task(metadata: Any) -> str:
    return "" if metadata is None else str(metadata.name)


def _texts(queries: datasets.Dataset) -> Sequence[str]:
    from obliq_models.retrievers.base import query_texts

    return query_texts(queries)
