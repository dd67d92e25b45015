"""`obliq verify-paper`: the systems that were run here, measured against the paper's figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from obliq_eval import runs, show
from obliq_eval.leaderboard import paper
from obliq_eval.leaderboard.verify_paper import Verification, verifiable, verify

app = typer.Typer(add_completion=False)

COLUMNS = (
    "system", "run", "task", "judgments", "measure", "reported", "measured", "difference", "tolerance", "verdict",
)  # fmt: skip
HELP = """Compare stored runs of the paper's systems with the paper's figures.

Only runs over all queries of an official task at the official data revision are compared, the newest of each model.
A figure's tolerance is half a unit of its last printed decimal; for OBLIQ-IR's NDCG@10 the spread between machines is
added that its model card states (Writing .00015, Congress .00056). Exit status 1 if anything differs by more, 2 if
there is nothing to compare.
"""


@app.command(help=HELP)
def verify_paper(
    systems: Annotated[
        list[str] | None, typer.Argument(metavar="SYSTEM", help="The paper's systems or models; by default all.")
    ] = None,
    *,
    tasks: Annotated[list[str] | None, typer.Option("-t", "--task", help="Official task; by default all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare stored runs of the paper's systems with the paper's figures."""
    figures = paper.reported()
    stored, problems = runs.scan()
    for problem in problems:
        show.warn(problem)
    found = verify(figures, stored, systems or (), tasks or ())
    if as_json:
        show.payload(_plain(found))
    elif found.checks:
        _print(found)
    for sentence in found.left_out:
        show.warn(f"not compared: {sentence}")
    if not found.checks:
        rows = [r for r in verifiable(figures) if (not systems or r[0] in systems) and (not tasks or r[1] in tasks)]
        if not as_json:
            show.table(("system", "task", "figures", "run it"), [(*row[:3], _command(row[3], row[1])) for row in rows])
        show.fail("no stored run can be compared with the paper's figures; run one of its systems, see `obliq models`")
        raise typer.Exit(2)
    if found.differs:
        raise typer.Exit(1)


def _print(found: Verification) -> None:
    rows = [
        (
            check.system, check.run, check.task, check.judgments, check.measure, _number(check.reported),
            _number(check.measured), None if check.difference is None else f"{check.difference:+.6f}",
            f"{check.tolerance:.2g}", check.verdict,
        )
        for check in found.checks
    ]  # fmt: skip
    show.table(COLUMNS, rows)
    for order in found.orders:
        show.say(
            f"{order.run} against the authors' {order.reference} ({order.verdict}): of {order.found.common} queries "
            f"{order.found.same_order} have the same top {order.found.depth}, {order.found.same_scores} the same scores"
        )
    for run, sentences in found.explanations.items():
        show.say(f"what may explain the differences of {run}:")
        for sentence in sentences:
            show.say(f"  - {sentence}")
    for hint in found.hints:
        show.say(hint)
    within, differs, unknown = (sum(c.verdict == v for c in found.checks) for v in ("within", "differs", "unknown"))
    more = f", {unknown} unknown (the run is too shallow)" if unknown else ""
    show.say(f"{within} figures within their tolerance, {differs} not{more}")


def _plain(found: Verification) -> dict[str, Any]:
    return {
        "checks": [{**asdict(c), "difference": c.difference, "verdict": c.verdict} for c in found.checks],
        "orders": [{**asdict(o), "verdict": o.verdict} for o in found.orders],
        "explanations": found.explanations,
        "left_out": found.left_out,
        "hints": found.hints,
    }


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.16g}"


def _command(alias: str | None, task: str) -> str | None:
    return None if alias is None else f"obliq run -m {alias} -t {task}"
