"""The mteb tasks: metadata, over one base class that owns exclusions, unanswered queries and both judgments."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from obliq_eval import oracles
from obliq_eval.data import sources
from obliq_eval.data.official import LICENCE, OFFICIAL, REPOSITORY, REVISION
from obliq_eval.errors import UserError
from obliq_eval.evaluation import Evaluation, record
from obliq_eval.exclusions import EXCLUDED_COLUMN, ExcludingSearch, candidates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.benchmarks.benchmark import Benchmark

    from obliq_eval.records import Dataset

logger = logging.getLogger("obliq")
SPLIT = "test"  # mteb's word; the split holds every query, as the paper's tables do
MODEL_FILE = "model_meta"  # of mteb, in the folder of the result files
CUTS = (1, 3, 5, 10, 20, 50, 100, 1000)
PAPER = r"""@article{tchuindjo2026obliq,
  author = {Tchuindjo, Diane and Shah, Devavrat and Khattab, Omar},
  journal = {arXiv preprint arXiv:2605.06235},
  title = {OBLIQ-Bench: Exposing Overlooked Bottlenecks in Modern Retrievers with Latent and Implicit Queries},
  year = {2026},
}"""


class ObliqTask(AbsTaskRetrieval):
    """A retrieval task with gold and pooled judgments from one search, and exclusions before the cut-off.

    A subclass states its `metadata` and the `reference` that `obliq_eval.data.sources.load` understands.
    """

    reference: str | Path
    k_values = CUTS
    data: Dataset
    data_counts: Mapping[str, int]

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:  # noqa: ARG002 -- mteb's signature
        """Load the data; judgments without a relevant document are left out and named in a warning."""
        if self.data_loaded:
            return
        import datasets

        data = self.data = sources.load(self.reference)
        gold = data.gold
        if not gold.queries:
            raise UserError(f"{data.name} has no gold judgment above 0, so nothing can be evaluated; check its qrels")
        if gold.unjudgeable:
            logger.warning(
                "%s: %d queries have no relevant document and are left out: %s",
                data.name,
                len(gold.unjudgeable),
                ", ".join(gold.unjudgeable[:5]),
            )
        corpus = set(data.corpus.documents["id"])
        missing = sum(d not in corpus for _, d, g in gold.pairs() if g > 0)
        both = sum(d in data.exclusions.get(q, ()) for q, d, g in gold.pairs() if g > 0)
        self.data_counts = {"gold documents not in the corpus": missing, "gold documents that are excluded": both}
        if missing:
            logger.warning(
                "%s: %d gold documents are not in the corpus: they cannot be found and count as missed; "
                "`obliq data check` names them",
                data.name,
                missing,
            )
        if both:
            logger.warning(
                "%s: %d gold documents are also excluded for their query: they cannot be found and count as missed",
                data.name,
                both,
            )
        queries = {q: data.queries[q] for q in data.queries if q in set(gold.queries)}
        table = datasets.Dataset.from_dict(
            {
                "id": list(queries),
                "text": list(queries.values()),
                EXCLUDED_COLUMN: [sorted(data.exclusions.get(q, ())) for q in queries],
            },
            features=datasets.Features(
                {
                    "id": datasets.Value("string"),
                    "text": datasets.Value("string"),
                    EXCLUDED_COLUMN: datasets.List(datasets.Value("string")),
                }
            ),
        )
        judged = {q: {d: max(g, 0) for d, g in gold.grades[q].items()} for q in queries}
        split = {"corpus": data.corpus.documents, "queries": table, "relevant_docs": judged, "top_ranked": None}
        self.dataset = {"default": {SPLIT: split}}  # type: ignore[dict-item]  # a TypedDict in mteb
        self.data_loaded = True

    def _evaluate_subset(self, model: Any, data_split: Any, **kwargs: Any) -> dict[str, Any]:
        """Search once; score gold by mteb and pooled by our panel; leave the run in the store.

        Judgments are shown to a model that declares itself an oracle (`obliq_eval.oracles`), and to no other.
        """
        search = ExcludingSearch(model, self.data.exclusions)
        started = time.monotonic()
        with oracles.shown(model, self.data.judgments()) as oracle:
            scores = super()._evaluate_subset(search, data_split, **kwargs)
        evaluation = Evaluation(
            data=self.data,
            meta=search.mteb_model_meta,
            run=search.run,
            seconds=time.monotonic() - started,
            encode_kwargs=kwargs.get("encode_kwargs") or {},
            candidates=data_split["top_ranked"],
            excluded=search.dropped,
            counts={**self.data_counts, **getattr(model, "counts", {})},
            oracle=oracle,
        )
        return record(evaluation, scores)

    def convert_to_reranking(self, top_ranked_path: str | Path, top_k: int = 10) -> ObliqTask:
        """Turn the task into reranking of an earlier run's best documents, exclusions dropped before the cut.

        Args:
            top_ranked_path: Prediction file of mteb, or the folder that holds it.
            top_k: Size of the pool.
        """
        from obliq_eval.run_files import read_run

        path = Path(top_ranked_path)
        path = path / self.prediction_file_name if path.is_dir() else path
        run = read_run(path)
        if not self.data_loaded:
            self.load_data()
        self._top_k = top_k
        self.dataset["default"][SPLIT]["top_ranked"] = candidates(run, self.data.exclusions, top_k)
        return self


def _metadata(name: str, path: str, revision: str, description: str, licence: str, **more: Any) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        dataset={"path": path, "revision": revision},
        description=description,
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        license=licence,
        dialect=[],
        **more,
    )


def _task(reference: str | Path, metadata: TaskMetadata, base: type[ObliqTask] = ObliqTask) -> type[ObliqTask]:
    class_name = "".join(part.capitalize() for part in metadata.name.replace("_", "-").split("-"))
    return type(class_name, (base,), {"reference": reference, "metadata": metadata, "__module__": __name__})


def _official(name: str) -> type[ObliqTask]:
    task = OFFICIAL[name]
    judged = "gold judgments" if task.pooled is None else "gold judgments, pooled ones beside them"
    return _task(
        name,
        _metadata(
            name, REPOSITORY, REVISION,
            f"OBLIQ-Bench, {task.mechanism} queries: relevance is the {task.attribute}; {judged}.", LICENCE,
            reference="https://arxiv.org/abs/2605.06235", bibtex_citation=PAPER, date=("2025-01-01", "2026-05-09"),
            annotations_creators="expert-annotated", sample_creation="found",
        ),
    )  # fmt: skip


MINI_DESCRIPTIONS = {
    "OBLIQ-Mini-Writing": "Passages of presidential addresses by the same person in another year: style, not subject.",
    "OBLIQ-Mini-Math": "Theorems whose formal proof cites the same key lemma, from comments that do not name it.",
    "OBLIQ-Mini-Congress": "One passage of an address, from a lossy recollection without names, dates or phrases.",
}


def _mini(name: str) -> type[ObliqTask]:
    layout = sources.official_layout(sources.MINI_FOLDER / sources.MINI[name])
    licence = "cc0-1.0" if name == "OBLIQ-Mini-Math" else "not specified"
    revision = sources.content_revision(layout)
    metadata = _metadata(
        name, f"obliq/{name}", revision, MINI_DESCRIPTIONS[name], licence,
        annotations_creators="derived", sample_creation="found", bibtex_citation="",
    )  # fmt: skip
    return _task(name, metadata)


class FolderTask(ObliqTask):
    """A task over a folder, which may change between the moment it is chosen and the search."""

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Load the data, if it still is what the task's revision says."""
        super().load_data(num_proc, **kwargs)
        if self.data.corpus.revision != self.metadata.revision:
            self.data_loaded = False
            raise UserError(f"{self.reference} has changed since it was chosen; run again when it changes no more")


def folder_task(folder: Path) -> ObliqTask:
    """Return a task over a folder in the official or BEIR layout; its revision is the hash of its content.

    Raises:
        UserError: If the folder has neither layout, the name of a registered task of anyone's, or that of a file which
            mteb writes beside the results.
    """
    name = folder.resolve().name
    if _is_registered(name):
        raise UserError(f"{folder} has the name of a registered task; rename the folder, so that results stay apart")
    if name.lower() == MODEL_FILE:
        raise UserError(
            f"mteb describes the model in {MODEL_FILE}.json, beside the results; rename the folder {folder}"
        )
    revision = sources.content_revision(sources.find_layout(folder))
    metadata = _metadata(name, str(name), revision, f"The folder {name}.", "not specified")
    return _task(folder.resolve(), metadata, FolderTask)()


def _is_registered(name: str) -> bool:
    import mteb

    try:
        mteb.get_task(name)
    except KeyError:
        return name in {task.metadata.name for task in TASKS}  # before they are registered
    return True


OFFICIAL_TASKS = tuple(_official(name) for name in OFFICIAL)
MINI_TASKS = tuple(_mini(name) for name in sources.MINI)
TASKS = (*OFFICIAL_TASKS, *MINI_TASKS)


def benchmarks() -> tuple[Benchmark, ...]:
    """Return the two benchmarks; mini and official tasks are never in one."""
    from mteb.benchmarks.benchmark import Benchmark

    return (
        Benchmark(
            name="OBLIQ-Bench",
            tasks=tuple(task() for task in OFFICIAL_TASKS),
            description="Relevance is a latent attribute that a document never states. Gold judgments first, pooled "
            "ones beside them; the paper gives no mean over tasks.",
            reference="https://arxiv.org/abs/2605.06235",
            citation=PAPER,
        ),
        Benchmark(
            name="OBLIQ-Mini",
            tasks=tuple(task() for task in MINI_TASKS),
            description="Three small tasks on real public-domain text that come with the package; not comparable with "
            "OBLIQ-Bench.",
            reference=None,
            citation=None,
        ),
    )
