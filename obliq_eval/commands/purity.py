"""`obliq purity`: does a graph follow an attribute? Same-label edges against random pairs, by rank and stratum."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from obliq_eval.analyses.purity import Purity, Share, Values

app = typer.Typer(add_completion=False)

GROUPS = ("union", "query")
FIELD = "FILE or FILE#NAME: JSON {document id: value or list}, or JSONL or TSV with NAME as the key or column"
SHOWN = 20
HELP = """Test a specialist's graph before any training (paper, section 6.5): how often do edges join documents of one
label, against random pairs of labelled documents?

Labels come from a task's judgments (documents relevant to one query are one group, joined by union-find; for analysis
only), from a qrels file, or from a file of labels. --within compares inside the strata of a nuisance field, such as
the decade: a lift that comes from this field alone goes down to 1 there. --audit is for labels that the graph should
not follow, such as dialect.

Status 1: the graph is not shown to follow the labels, too few labels included (never with --audit).
"""


@app.command(help=HELP)
def purity(
    edges: Annotated[Path, typer.Argument(metavar="EDGES", help="What `obliq graph` wrote: .jsonl, or .tsv.")],
    *,
    task: Annotated[str | None, typer.Option("--task", "-t", "--data", metavar="TASK|FOLDER", help="Its gold.")] = None,
    qrels: Annotated[Path | None, typer.Option("--qrels", metavar="FILE", help="Judgments.")] = None,
    labels: Annotated[str | None, typer.Option("--labels", metavar="FILE", help=f"Labels. {FIELD}.")] = None,
    groups: Annotated[
        str, typer.Option("--groups", help="From judgments: union (joined by union-find), or query (no joining).")
    ] = "union",
    source: Annotated[
        str | None, typer.Option("--source", metavar="FILE", help="As for `obliq graph`: pairs inside do not count.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--source-pattern", metavar="REGEX", help="As for `obliq graph`.")
    ] = None,
    within: Annotated[str | None, typer.Option("--within", metavar="FILE", help=f"Nuisance field. {FIELD}.")] = None,
    audit: Annotated[
        str | None, typer.Option("--audit", metavar="NAME", help="What the labels are, if none should be followed.")
    ] = None,
    resamples: Annotated[
        int, typer.Option("--resamples", min=1, max=1_000_000, help="Resamples of the anchors.")
    ] = 10_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the resamples.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw purity by k: FILE.svg or FILE.png.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Test a graph against labels."""
    from obliq_eval.analyses.purity import purity as measure
    from obliq_eval.edges import read_edges
    from obliq_eval.fields import read_field, read_sources

    if plot is not None:
        from obliq_eval.drawing import check_target

        check_target(plot)
    graph = read_edges(edges)
    known = _labels(task, qrels, labels, groups)
    touched = {document for edge in graph for document in edge[:2]}
    if not known.keys() & touched:
        raise UserError(
            f"none of the {len(known):,} labelled documents is in {edges}: its ids are others, such as "
            f"{next(iter(known), '(none)')!r} and {graph[0].anchor!r}"
        )
    sources = read_sources(source, pattern, touched | known.keys())
    strata = None if within is None else read_field(within)
    found = measure(graph, known, sources=sources, strata=strata, seed=seed, resamples=resamples)
    field = "" if within is None else within.rpartition("#")[2] if "#" in within else Path(within).stem
    said = found.sentence(field, audit=audit or "")
    if as_json:
        show.payload(_record(found, said))
    else:
        _tell(found, field)
        show.say(said)
    if plot is not None:
        from obliq_eval import drawing, plots

        drawing.save(plots.purity(found, f"{edges.name}: {found.whole.labelled:,} labelled edges"), plot)
        show.say(f"picture: {plot}", stderr=as_json)
    if found.verdict in {"unknown", "not aligned"} and audit is None:
        raise typer.Exit(1)


def _labels(task: str | None, qrels: Path | None, labels: str | None, groups: str) -> Values:
    from obliq_eval.analyses.groups import groups_of, queries_of
    from obliq_eval.data.files import read_qrels
    from obliq_eval.fields import read_field

    if sum(given is not None for given in (task, qrels, labels)) != 1:
        raise UserError("say where labels come from, once: -t TASK|FOLDER, --qrels FILE or --labels FILE")
    if groups not in GROUPS:
        raise UserError(f"--groups is {groups!r}, not {' or '.join(GROUPS)}{near(groups, GROUPS)}")
    if labels is not None:
        return read_field(labels)
    if qrels is not None:
        judged = read_qrels(qrels)
    else:
        from obliq_eval.data.sources import load

        judged = load(str(task)).gold
    if groups == "query":
        return queries_of(judged)
    found = groups_of(judged)
    largest = max(Counter(found.values()).values(), default=0)
    if largest > len(found) / 2 and len(found) > largest:
        show.warn(
            f"union-find put {largest:,} of {len(found):,} documents into one group, since queries share documents: "
            "--groups query compares by query instead"
        )
    return found


def _tell(found: Purity, field: str) -> None:
    from obliq_eval.analyses.purity import COLUMNS

    rows: list[list[object]] = [["all edges", *found.whole.row()]]
    rows += [[f"rank 1 to {k}" if k > 1 else "rank 1", *share.row()] for k, share in found.by_k.items()]
    if found.within is not None:
        rows.append([f"inside one {field}", *found.within.row()])
    show.table(("", *COLUMNS), rows, title=f"{found.documents:,} labelled documents, {found.labels:,} labels")
    if found.strata:
        most = list(found.strata.items())[:SHOWN]
        show.table((field, *COLUMNS), [[value, *share.row()] for value, share in most])
        if len(found.strata) > SHOWN:
            show.say(f"… and {len(found.strata) - SHOWN} more; --json has all")
        show.say(f"{found.across:,} labelled edges join documents of different or unknown {field}")
    if found.inside_source:
        show.warn(f"{found.inside_source:,} edges inside a source were left out: was the graph made without --source?")
    if found.outside:
        show.say(f"{found.outside:,} labelled documents are not in the graph; they count for the base rate")
    show.say(
        f"{found.level:.0%} percentile intervals over {found.resamples:,} resamples of the anchors; seed {found.seed}"
    )


def _record(found: Purity, said: str) -> dict[str, Any]:
    return {
        **asdict(found),
        "whole": _share(found.whole),
        "by_k": {k: _share(share) for k, share in found.by_k.items()},
        "within": None if found.within is None else _share(found.within),
        "strata": {value: _share(share) for value, share in found.strata.items()},
        "verdict": found.verdict,
        "sentence": said,
    }


def _share(share: Share) -> dict[str, Any]:
    return {**asdict(share), "purity": share.purity, "base": share.base, "lift": share.lift}
