"""What is written down after one search: both panels and the stored run with its manifest."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval import metrics, oracles, runs
from obliq_eval.catalogue import catalogue
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from obliq_eval.records import Dataset, Run

logger = logging.getLogger("obliq")
PANEL = ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100", "recall@1000")
ROUNDING = 2e-5  # mteb rounds its means to five decimals
CUT = ("truncated ", "lost ")  # counts of a model that whoever reads the result must see
RERUN_SETTINGS = frozenset({"device", "path", "show_progress_bar"})
"""Settings that do not change what a run says: where and how it runs; what a folder holds is in the revision."""


@dataclass(frozen=True)
class Evaluation:
    """One search over one data set.

    Args:
        data: The data.
        meta: The model's `mteb.ModelMeta`.
        run: Canonical answers, exclusions applied.
        seconds: Wall-clock time of the search and mteb's scoring.
        encode_kwargs: What mteb passed to the model's `encode`.
        candidates: Documents of an earlier run that were reranked, by query; None for a search of everything.
        excluded: How many excluded documents had to be dropped from the model's answers.
        counts: What the model itself counted, such as truncated texts.
        oracle: Whether the model was shown judgments.
    """

    data: Dataset
    meta: Any
    run: Run
    seconds: float
    encode_kwargs: Mapping[str, Any] = field(default_factory=dict)
    candidates: Mapping[str, Sequence[str]] | None = None
    excluded: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    oracle: bool = False


def panels(run: Run, data: Dataset) -> dict[str, metrics.Panel]:
    """Score a run under every judgment of a data set that has relevant documents.

    Queries that were not searched because the main judgments know no relevant document for them are left out of the
    other panel as well: their empty answer says nothing about the model.
    """
    searched = set(data.gold.queries) or set(data.queries)
    parts = {name: judgments.only(searched) for name, judgments in data.judgments().items()}
    return {name: metrics.score(run, part, PANEL) for name, part in parts.items() if part.queries}


def record(evaluation: Evaluation, scores: Mapping[str, Any]) -> dict[str, Any]:
    """Score both judgments, store the run, and return what mteb's result file is to hold.

    Args:
        evaluation: What was searched and found.
        scores: What mteb computed for the gold judgments.

    Returns:
        mteb's scores; `ndcg_at_10` and so on as our panel has them, rounded to five decimals as mteb rounds, since the
        two may sum in another order; the same with `pooled_` in front; no recall deeper than the run; how many queries
        there were and how many of them got no answer; `oracle` if judgments were shown; the id of the stored run.

    Raises:
        UserError: If mteb and our panel disagree by more than rounding.
    """
    scored = panels(evaluation.run, evaluation.data)
    gold = scored["gold"]
    if gold.unanswered:
        logger.warning(
            "%s: %d of %d queries got no answer and score 0: %s",
            evaluation.data.name, len(gold.unanswered), len(gold.queries), ", ".join(gold.unanswered[:5]),
        )  # fmt: skip
    merged = _merged(scores, scored)
    merged |= {"queries": "all", "n_queries": len(gold.queries), "n_unanswered": len(gold.unanswered)}
    merged |= {oracles.MARK: True} if evaluation.oracle else {}
    merged |= {key.replace(" ", "_"): n for key, n in evaluation.counts.items() if key.startswith(CUT)}
    try:
        merged["obliq_run"] = runs.store(evaluation.run, _manifest(evaluation, scored)).name
    except UserError as error:  # hours of encoding must not be lost with the run
        logger.warning("the run could not be stored: %s", error)
    return merged


def _merged(scores: Mapping[str, Any], scored: Mapping[str, metrics.Panel]) -> dict[str, Any]:
    merged = dict(scores)
    for name, prefix in (("gold", ""), ("pooled", "pooled_")):
        for measure, mean in scored[name].means().items() if name in scored else ():
            key = prefix + measure.replace("@", "_at_")
            theirs = merged.pop(key, mean)
            if mean is None:
                continue
            if abs(theirs - mean) > ROUNDING:
                raise UserError(
                    f"mteb computes {key} = {theirs} and obliq {mean}: one of them is wrong; please report it"
                )
            merged[key] = round(mean, 5)
    return merged


def documents_hash(exclusions: Mapping[str, Collection[str]]) -> str:
    """Return a hash over the documents of each query, in whatever order; empty where there are none."""
    plain = {query: sorted(ids) for query, ids in sorted(exclusions.items()) if ids}
    if not plain:
        return ""
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode()).hexdigest()


def _alias(name: str) -> str | None:
    return next((alias for alias, entry in catalogue().items() if entry.name == name), None)


def _manifest(evaluation: Evaluation, scored: Mapping[str, metrics.Panel]) -> runs.Manifest:
    data, meta, gold = evaluation.data, evaluation.meta, scored["gold"]
    settings = {
        key: value
        for part in (meta.loader_kwargs, meta.experiment_kwargs, evaluation.encode_kwargs)
        for key, value in (part or {}).items()
        if key not in RERUN_SETTINGS
    }
    if evaluation.candidates is not None:
        settings["reranked"] = documents_hash(evaluation.candidates)
    if evaluation.oracle:
        settings[oracles.MARK] = True
    return runs.Manifest(
        task=data.name,
        data=runs.Data(data.name, data.revision, data.corpus.source, documents_hash(data.exclusions)),
        model=runs.Model(str(meta.name), meta.revision, settings, _alias(str(meta.name))),
        depth=evaluation.run.depth,
        n_queries=len(gold.queries),
        unanswered=gold.unanswered,
        counts={"excluded documents dropped from the answers": evaluation.excluded, **evaluation.counts},
        seconds=evaluation.seconds,
        versions=runs.versions(),
        hardware=runs.hardware(),
        scores={name: panel.known() for name, panel in scored.items()},
    )
