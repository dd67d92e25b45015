"""`obliq negatives`: training rows from synthetic queries, edges or rows, with negatives mined by BM25."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_models.commands import options  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obliq_train.distinct import Distinct
    from obliq_train.negatives import Ranks
    from obliq_train.pairs import Kind, Pair, Reader
    from obliq_train.rows import Row
    from obliq_train.scores import Lists, Teacher

app = typer.Typer(add_completion=False)

ANCHORS = ("description", "document")
FROM = ("query", "positive")
HELP = """Write training rows: each query with its positives, and hard negatives by BM25.

FILE holds synthetic queries (`obliq synth`), edges (`obliq graph`), or rows whose negatives are to be mined anew. No
positive, source document, neighbour of it in the graph, nor a copy of one of these becomes a negative. A synthetic row
is scored from its query, an edge from its neighbour, unless --from says otherwise. With --scores a cross-encoder's
scores stand in each row, for MarginMSE; with --ranking a row holds a teacher's list, for the distilled reranker.
"""


@app.command(help=HELP)
def negatives(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="synthetic.jsonl, edges.jsonl or rows.jsonl.")],
    *,
    data: Annotated[str, typer.Option("--data", metavar="TASK|FOLDER|FILE", help="The documents that FILE is about.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default FILE's name with .rows.jsonl.")
    ] = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Negatives for each row.")] = 4,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Leave out this many of the first ranks.")] = 0,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="A-B", help="Draw from these ranks at random, as in 5-50.")
    ] = None,
    scored: Annotated[str | None, typer.Option("--from", help="Score from the query or from the positive.")] = None,
    graph: Annotated[
        Path | None, typer.Option("--graph", metavar="FILE", help="The whole graph; by default FILE, if of edges.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option("--like", metavar="FILE", help="The teacher's edges, if FILE is a control: same negatives."),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option("--anchor", help="An edge's query: the anchor's description, or the document itself.")
    ] = None,
    descriptions: Annotated[
        Path | None, typer.Option("--descriptions", metavar="FILE", help="JSONL with document and description.")
    ] = None,
    one_line: Annotated[bool, typer.Option("--one-line", help="The description's first sentence only.")] = False,
    instruction: Annotated[str, typer.Option("--instruction", help="What is put before queries.")] = "",
    passage_instruction: Annotated[str, typer.Option("--passage-instruction", help="And before documents.")] = "",
    name: Annotated[str | None, typer.Option("--name", help="Name of the part; by default FILE's name.")] = None,
    variant: Annotated[str, typer.Option("--bm25", help="BM25's tokenizer and formula: default, okapi or stem.")] = (
        "default"
    ),
    scores: Annotated[
        str | None, typer.Option("--scores", metavar="MODEL", help="Cross-encoder that scores each row's documents.")
    ] = None,
    ranking: Annotated[
        str | None,
        typer.Option("--ranking", metavar="RUN", help="A teacher's run: its first n + 1 as each row's list."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw from --ranks.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Mine negatives and write rows."""
    from obliq_eval.commands.run import quiet
    from obliq_models.documents import read_source

    quiet(0)
    if scored is not None and scored not in FROM:
        raise UserError(f"--from is {scored!r}, not {' or '.join(FROM)}{near(scored, FROM)}")
    from obliq_train import pairs, provenance
    from obliq_train.distinct import Distinct
    from obliq_train.negatives import Miner
    from obliq_train.rows import row_lines

    kind = pairs.kind_of(file)
    if ranking is not None:
        _check_ranking({"--scores": scores, "--graph": graph, "--like": like, "--from": scored, "--ranks": ranks,
                        "--skip": skip})  # fmt: skip
    target = output or file.with_name(f"{file.stem}.rows.jsonl")
    provenance.check_output(target, file, data, graph, like, descriptions, ranking)
    asked = _ranks(count, skip, ranks)
    query = _anchor(kind, anchor, descriptions, like)
    told = None if query != "description" else pairs.read_descriptions(descriptions or file, one_line=one_line)
    whole = graph or (file if kind == "edges" and like is None else like)
    near_by = pairs.graph_of(whole)
    documents = read_source(data)
    for note in documents.notes:
        show.warn(note)
    held = Distinct(documents.table)
    reader = pairs.Reader(held, name if name is not None else file.stem, instruction, passage_instruction)
    basis = pairs.SCORED[kind] if scored is None else ("query" if scored == "query" else "positive")
    found = _pairs(reader, kind, file, told, like)
    teacher = _teacher(scores, ranking, held, count)
    rows: Iterator[Row]
    if ranking is not None:
        rows, mined = (pair.row for pair in found), Counter[str]()
    else:
        miner = Miner(held, near_by, variant)
        rows, mined = pairs.with_negatives(found, miner, basis, asked, seed=seed), miner.counts
    if teacher is not None:
        rows = teacher.scored(show.track(rows, "scores"))
    manifest = provenance.write(
        target,
        row_lines(rows),
        command="obliq negatives",
        settings={
            "file": str(file), "corpus": data, "kind": kind, "from": basis, "n": count, "first": asked.first,
            "last": asked.last, "anchor": query, "one_line": one_line, "instruction": instruction, "bm25": variant,
            "passage_instruction": passage_instruction, "name": reader.source,
            "graph": str(whole) if whole else None, "like": str(like) if like else None,
            "descriptions": str(descriptions) if descriptions else None,
            "scores": teacher and teacher.settings(),
        },
        inputs={"corpus": held.content, **provenance.inputs(file, whole, like, descriptions)},
        seed=seed if asked.last is not None else None,
        counts=lambda: {**held.counts, **reader.counts, **mined, **(teacher.counts if teacher else {})},
    )  # fmt: skip
    _tell(target, manifest, kind, held, graphed=bool(near_by or ranking), as_json=as_json)


def _pairs(
    reader: Reader, kind: Kind, file: Path, descriptions: dict[str, str] | None, like: Path | None
) -> Iterator[Pair]:
    from obliq_train.pairs import graph_of

    if kind == "synthetic":
        return reader.synthetic(file)
    if kind == "rows":
        return reader.rows(file)
    return reader.edges(graph_of(file), descriptions, like=graph_of(like))


def _teacher(scores: str | None, ranking: str | None, held: Distinct, count: int) -> Teacher | Lists | None:
    from obliq_train import scores as teachers

    if ranking is not None:
        return teachers.lists(ranking, held, count + 1)
    return None if scores is None else teachers.load(scores)


def _check_ranking(others: dict[str, object]) -> None:
    """Refuse what means nothing where a run says which documents a row has."""
    if idle := [option for option, value in others.items() if value]:
        raise UserError(f"--ranking takes a row's documents from a run: leave {', '.join(idle)} out")


def _ranks(count: int, skip: int, ranks: str | None) -> Ranks:
    from obliq_train.negatives import Ranks

    if ranks is None:
        return Ranks(count, skip + 1)
    found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", ranks.strip())
    if found is None or skip:
        raise UserError(f"--ranks is {ranks!r}: write the first and the last rank, as in 5-50, and leave --skip out")
    return Ranks(count, int(found[1]), int(found[2]))


def _anchor(kind: Kind, anchor: str | None, descriptions: Path | None, like: Path | None) -> str | None:
    """Return what an edge's query is; None where FILE has no edges."""
    if kind != "edges":
        if anchor or descriptions or like:
            raise UserError("--anchor, --descriptions and --like are for a FILE of edges")
        return None
    if anchor is not None and anchor not in ANCHORS:
        raise UserError(f"--anchor is {anchor!r}, not {' or '.join(ANCHORS)}{near(anchor, ANCHORS)}")
    wanted = anchor or ("description" if descriptions else None)
    if wanted is None:
        raise UserError(
            "say what an edge's query is: --descriptions FILE (Stage A's, from `obliq synth`) or --anchor document"
        )
    if (wanted == "description") != (descriptions is not None):
        raise UserError("--anchor description and --descriptions FILE go together")
    return wanted


def _tell(target: Path, manifest: dict[str, Any], kind: Kind, held: Distinct, *, graphed: bool, as_json: bool) -> None:
    counts = manifest["counts"]
    if kind != "rows" and not graphed:
        show.warn("no graph was given, so a neighbour of a row's source may be among its negatives")
    if as_json:
        show.payload({"path": str(target), **manifest})
        return
    listed = "run" in (manifest["settings"]["scores"] or {})
    show.say(
        f"{target}: {counts.get('rows', 0):,} rows with {counts.get('negatives', 0):,} negatives from "
        f"{len(held.columns):,} distinct texts, "
        + ("as a run ranks them" if listed else f"scored from the {manifest['settings']['from']}")
    )
    for what, number in counts.items():
        if number and what not in {"rows", "negatives", "documents", "distinct texts"}:
            show.say(f"{number:,} {what}")
