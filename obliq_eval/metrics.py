"""What one run scores under one set of judgments, query by query."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from obliq_eval.errors import UserError, raise_all
from obliq_eval.home import home
from obliq_eval.records import Judgments, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

DEFAULT_MEASURES = ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100", "recall@1000")
# Added where every query has one relevant document; the cut-offs of success are trec_eval's own.
ONE_RELEVANT_MEASURES = ("mrr@10", "success@1", "success@5", "success@10")

_RANX_NAMES = {"ndcg": "ndcg", "recall": "recall", "mrr": "mrr", "success": "hit_rate"}
_MEASURE = re.compile(rf"({'|'.join(_RANX_NAMES)})@([1-9][0-9]{{0,5}})")
_NOT_RELEVANT = -1.0  # the number that stands for every document outside a query's relevant ones
_log = logging.getLogger("obliq")
# ranx computes with a numba threading layer that aborts the process when two threads enter it at once.
_ranx_lock = threading.Lock()


@dataclass(frozen=True)
class Panel:
    """What one run scores under one set of judgments.

    Args:
        queries: Judged queries, those with a relevant document, in the order of the judgments.
        values: `{measure: float64 array of shape (len(queries),)}`, read-only; an unanswered query scores 0.
        depth: How many documents the run asked for.
        unanswered: Judged queries whose answer is empty or absent.
        unjudgeable: Queries of the judgments or of the run without a relevant document; none of them is scored.
        unknown: How many queries of the run the judgments do not mention; they are among `unjudgeable`.
        judged_at_10: Mean over answered queries of the share of the first 10 documents (of all, where fewer were
            returned) that have a judgment, relevant or not; `None` where no query was answered.
        unjudged_at_10: How many of these first documents have none, over all queries.
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]
    depth: int
    unanswered: tuple[str, ...]
    unjudgeable: tuple[str, ...]
    unknown: int
    judged_at_10: float | None
    unjudged_at_10: int

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in the order of a table's columns."""
        return tuple(self.values)

    def mean(self, measure: str) -> float | None:
        """Return the mean over all judged queries, or `None` where the run is too shallow to know it.

        Recall@k and success@k ask whether a document is within reach at depth k. A run that asked for fewer than k
        documents cannot say: its own value would be recall at its depth under another name. NDCG@k and MRR@k are given
        for any depth, as in trec_eval: they score the list as it was returned, and what it left out gains nothing.

        Raises:
            KeyError: If the measure was not computed.
        """
        name, k = parse_measure(measure)
        values = self.values[measure]
        return None if name in {"recall", "success"} and k > self.depth else math.fsum(values.tolist()) / len(values)

    def means(self) -> dict[str, float | None]:
        """Return the mean of every measure, see `mean`."""
        return {measure: self.mean(measure) for measure in self.values}

    def known(self) -> dict[str, float]:
        """Return the means that the run is deep enough to know."""
        return {measure: mean for measure, mean in self.means().items() if mean is not None}


def parse_measure(measure: str) -> tuple[str, int]:
    """Return a measure's name and cut-off: `ndcg@10` is `("ndcg", 10)`.

    Raises:
        UserError: If it is not one of ndcg, recall, mrr, success with a cut-off from 1 to 999,999.
    """
    match = _MEASURE.fullmatch(measure)
    if match is None:
        raise UserError(
            f"measure {measure!r} is unknown: ask for one of {', '.join(_RANX_NAMES)} with a cut-off, as in ndcg@10"
        )
    return match[1], int(match[2])


def evaluate(
    run: Run | Mapping[str, Mapping[str, float]] | Mapping[str, Sequence[str]],
    qrels: Judgments | Mapping[str, Mapping[str, object]],
    measures: Sequence[str] | None = None,
    depth: int | None = None,
) -> Panel:
    """Score a run against qrels, both as in-memory dicts.

    Args:
        run: `{query id: {document id: score}}` in any order, or `{query id: [document id, …]}` with the best first.
        qrels: `{query id: {document id: grade}}`; a grade above 0 is relevant.
        measures: Such as `["ndcg@10", "recall@100"]`; by default see `score`.
        depth: How many documents the run asked for; by default the `Run`'s own, or the longest answer.

    Raises:
        UserError: If an id is not a string, a grade is not a whole number, a document is ranked twice, a score is not
            finite, or no query has a relevant document.
    """
    if depth is not None and (not isinstance(depth, int) or depth < 1):
        raise UserError(f"depth {depth!r} is not a whole number of documents, at least 1")
    if not isinstance(qrels, Judgments):
        _check_form(qrels, "qrels", (Mapping,), "a dict {document id: grade}")
        qrels = Judgments.from_dict(qrels)
    if isinstance(run, Run):
        return score(run if depth is None else replace(run, depth=depth), qrels, measures)
    if any(isinstance(answer, Mapping) for answer in run.values()):
        _check_form(run, "run", (Mapping,), "a dict {document id: score}, as other queries have")
        return score(_cut(Run.of(cast("Mapping[str, Mapping[str, float]]", run)), depth), qrels, measures)
    _check_form(run, "run", (list, tuple), "a list of document ids")
    return score(_cut(Run.from_lists(cast("Mapping[str, Sequence[str]]", run)), depth), qrels, measures)


def _cut(run: Run, depth: int | None) -> Run:
    return run if depth is None else run.without({}, depth)


def score(run: Run, judgments: Judgments, measures: Sequence[str] | None = None) -> Panel:
    """Score a run, per query; safe to call from several threads.

    Queries come from the judgments, never from the run. To judge a part of the queries, cut both with `only`.

    Args:
        run: Rankings in canonical order.
        judgments: Grades; NDCG's gain is the grade itself (Järvelin and Kekäläinen 2002, as in trec_eval), and a
            negative grade counts as 0.
        measures: Names of ndcg, recall, mrr or success with a cut-off. By default `DEFAULT_MEASURES`, and
            `ONE_RELEVANT_MEASURES` as well where every query has exactly one relevant document.

    Raises:
        UserError: If a measure is unknown or no query has a relevant document.
    """
    relevant = {query: _relevant(judgments.grades[query]) for query in judgments.queries}
    if not relevant:
        raise UserError("judgments: no query has a relevant document (a grade above 0); check that these are the qrels")
    if measures is None:
        one = all(len(documents) == 1 for documents in relevant.values())
        measures = (*DEFAULT_MEASURES, *ONE_RELEVANT_MEASURES) if one else DEFAULT_MEASURES
    parsed = {measure: parse_measure(measure) for measure in measures}

    answers = {q: run.rankings[q].documents if q in run.rankings else () for q in relevant}
    longest = max(len(documents) for documents in answers.values())
    cut = max(1, min(longest, max((k for _, k in parsed.values()), default=1)))
    values = _ranx(*_as_arrays(answers, relevant, cut), parsed)
    judged, unjudged = _judged(answers, judgments, 10)
    strangers = tuple(q for q in run.rankings if q not in judgments.grades)
    return Panel(
        queries=tuple(relevant),
        values=values,
        depth=run.depth,
        unanswered=tuple(q for q, documents in answers.items() if not documents),
        unjudgeable=judgments.unjudgeable + strangers,
        unknown=len(strangers),
        judged_at_10=judged,
        unjudged_at_10=unjudged,
    )


def _relevant(grades: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return `(grade, document id)` of the relevant documents, the ideal ranking first to last."""
    return sorted(((grade, document) for document, grade in grades.items() if grade > 0), reverse=True)


def _check_form(mapping: Mapping[Any, Any], source: str, forms: tuple[type[Any], ...], wanted: str) -> None:
    """Refuse what is not of the form, and ids that are not strings: 7 in a run would never meet "7" in the qrels."""
    problems = []
    for query, documents in mapping.items():
        if not isinstance(query, str):
            problems.append(f"query id {query!r} is not a string")
        elif not isinstance(documents, forms):
            problems.append(f"query {query!r} must have {wanted}, not {type(documents).__name__}")
        else:
            wrong = [document for document in documents if not isinstance(document, str)]
            problems += [f"query {query!r}: document id {document!r} is not a string" for document in wrong[:1]]
    raise_all(problems, source)


def _as_arrays(
    answers: Mapping[str, Sequence[str]], relevant: Mapping[str, Sequence[tuple[int, str]]], cut: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return run and qrels as ranx's arrays, (queries, length, 2): each row a number for the document, and a value.

    A query's relevant documents are numbered 0, 1, … from the highest grade down, since ranx takes the order of the
    qrels as the ideal ranking. Everything else, padding included, is `_NOT_RELEVANT`. ranx takes the order of the run
    as its ranking, so the run's values stay 0. Unlike a typed list, an array of one shape needs no compilation of its
    own in each process.
    """
    run = np.zeros((len(answers), cut, 2))
    run[:, :, 0] = _NOT_RELEVANT
    qrels = np.zeros((len(answers), max(len(documents) for documents in relevant.values()), 2))
    qrels[:, :, 0] = _NOT_RELEVANT
    for row, (query, documents) in enumerate(answers.items()):
        graded = relevant[query]
        number = {document: float(i) for i, (_, document) in enumerate(graded)}
        top = documents[:cut]
        run[row, : len(top), 0] = np.fromiter(map(number.get, top, repeat(_NOT_RELEVANT)), np.float64, len(top))
        qrels[row, : len(graded), 0] = np.arange(len(graded))
        qrels[row, : len(graded), 1] = [grade for grade, _ in graded]
    return run, qrels


def _judged(answers: Mapping[str, Sequence[str]], judgments: Judgments, k: int) -> tuple[float | None, int]:
    shares: list[float] = []
    unjudged = 0
    for query, documents in answers.items():
        top = documents[:k]
        if top:
            judged = sum(document in judgments.grades[query] for document in top)
            shares.append(judged / len(top))
            unjudged += len(top) - judged
    return (float(np.mean(shares)) if shares else None), unjudged


def _ranx(
    run: NDArray[np.float64], qrels: NDArray[np.float64], measures: Mapping[str, tuple[str, int]]
) -> dict[str, NDArray[np.float64]]:
    """Return ranx's values per query, one measure after the other, one thread at a time."""
    with _ranx_lock:
        switch = _ranx_metrics().metric_switch
        with _compilation_announced():
            values = {m: switch(_RANX_NAMES[name])(qrels, run, k=k) for m, (name, k) in measures.items()}
    for array in values.values():
        array.setflags(write=False)
    return values


def _ranx_metrics() -> Any:
    """Return ranx's subpackage of measures, imported without the rest of ranx.

    The rest imports pandas, matplotlib, scipy.stats and ir_datasets, which takes seconds and makes a folder in the
    user's home, and fails where it cannot. The subpackage needs numba alone. This is importlib's recipe for a given
    file, under the real name, since numba's compiled code refers to that.
    """
    name = "ranx.metrics"
    if "ranx" in sys.modules or name in sys.modules:
        return importlib.import_module(name)
    folder = _package_folder("ranx") / "metrics"
    _choose_numba_cache(folder)
    import numba

    # As ranx sets it: numba's other choice, OpenMP, aborts the process when it forks later.
    numba.config.THREADING_LAYER = "workqueue"  # type: ignore[attr-defined]
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{init} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _compilation_announced() -> Iterator[None]:
    """Say so if numba compiles anything inside, rather than loads what an earlier process compiled."""
    from numba.core import event

    class Announcer(event.Listener):
        told = False

        def on_start(self, event: object) -> None:  # noqa: ARG002 -- numba's signature
            if not self.told:
                _log.warning("compiling ranx's measures, once for each installation; this takes some seconds")
            self.told = True

        def on_end(self, event: object) -> None:
            """Nothing to say."""

    with event.install_listener("numba:compile", Announcer()):
        yield


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UserError(f"the package {name} is not installed: pip install {name}")
    return Path(spec.origin).parent


def _choose_numba_cache(package: Path) -> None:
    """Have numba keep the package's compiled code under `$OBLIQ_HOME` where the installation cannot be written.

    Where that cannot be written either, numba would refuse to import the package: a temporary folder serves.
    """
    if os.environ.get("NUMBA_CACHE_DIR") or os.access(package, os.W_OK):
        return
    cache = home() / "numba"
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if not os.access(cache, os.W_OK):
        _log.warning("cannot write %s, so each process compiles ranx anew; set OBLIQ_HOME to a writable folder", cache)
        cache = Path(tempfile.mkdtemp(prefix="obliq-numba-"))
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    import numba

    # numba may have been imported, and have read its settings, earlier
    numba.config.reload_config()  # type: ignore[no-untyped-call] # numba is typed in part
