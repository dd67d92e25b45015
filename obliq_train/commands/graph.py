"""`obliq graph`: the nearest-neighbour graph of a frozen specialist, a dose of its edges, and their controls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near
from obliq_models.commands import options

if TYPE_CHECKING:
    from obliq_eval.edges import Edge
    from obliq_train.distinct import Distinct
    from obliq_train.graph import Graph

app = typer.Typer(add_completion=False)

CONTROLS = ("random", "matched")
FIELD = "FILE or FILE#NAME: JSON {document id: value}, or JSONL or TSV with NAME as the key or column"
HELP = """Join every document to the nearest others in the space of a frozen model: who is whose neighbour, and at which
rank. Similarities never leave this step.

With --edges the graph is read instead of made, to take a dose or a control of it:

obliq graph OBLIQ-Mini-Writing -m stylometry -k 3 -o all.jsonl

obliq graph OBLIQ-Mini-Writing --edges all.jsonl --dose 500 -o dose.jsonl

obliq graph OBLIQ-Mini-Writing --edges dose.jsonl --control random -o random.jsonl

Keep the whole graph: `obliq negatives --graph` needs it, so that no neighbour becomes a negative.
"""


@app.command(help=HELP)
def graph(
    corpus: Annotated[
        str | None, typer.Argument(metavar="TASK|FOLDER|FILE", help="The documents, as for `obliq index`.")
    ] = None,
    *,
    data: Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="The same as FOLDER.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=options.MODEL)] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours for each document.")] = 3,
    source: Annotated[
        str | None, typer.Option("--source", metavar="FILE", help=f"Forbid edges inside a source. {FIELD}.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--source-pattern", metavar="REGEX", help="One group names the source, in the id or in --source."),
    ] = None,
    mutual: Annotated[bool, typer.Option("--mutual", help="Keep edges that are there both ways.")] = False,
    edges: Annotated[Path | None, typer.Option("--edges", metavar="FILE", help="Read the graph instead.")] = None,
    dose: Annotated[int | None, typer.Option("--dose", min=1, metavar="N", help="Draw this many edges.")] = None,
    control: Annotated[
        str | None, typer.Option("--control", help="Other neighbours: random, or matched on --match.")
    ] = None,
    match: Annotated[str | None, typer.Option("--match", metavar="FILE", help=f"The nuisance field. {FIELD}.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the dose and of the control.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default CORPUS.MODEL.edges.jsonl.")
    ] = None,
    device: options.Device = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Make the graph of a frozen specialist."""
    from obliq_eval.commands.run import quiet
    from obliq_eval.edges import edge_lines, read_edges
    from obliq_eval.fields import read_field, read_sources
    from obliq_models.documents import read_source

    place = _place(corpus, data)
    _check(model, edges, control, match, mutual=mutual)
    quiet(0)
    read = read_edges(edges) if edges is not None else None
    matched = None if match is None else read_field(match)
    documents = read_source(place)
    for note in documents.notes:
        show.warn(note)
    from obliq_train import controls, provenance  # heavy, so only after the checks
    from obliq_train.distinct import Distinct
    from obliq_train.graph import Graph

    target = output or Path(f"{Path(place).resolve().stem}.{_name(model, edges, control)}.edges.jsonl")
    provenance.check_output(target, place, edges, source, match)
    held = Distinct(documents.table)
    sources = read_sources(source, pattern, held.ids)
    settings: dict[str, Any] = {"corpus": place, "source": source, "source_pattern": pattern}
    if read is not None:
        made = Graph(_inside(read, held), {})
    else:
        made = _make(held, str(model), k, sources, settings, mutual, (device, engine, workers))
    counts, found = dict(made.counts), made.edges
    if dose is not None:
        found = controls.sample_edges(found, dose, seed)
        counts["edges before the dose"] = len(made.edges)
    if control is not None:
        other = controls.random_graph(held, found, seed=seed, sources=sources, match=matched)
        found, counts = other.edges, {**counts, **other.counts}
    if not found:
        told = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)
        raise UserError(f"no edge is left, and nothing was written ({told}): is every document of one source?")
    manifest = provenance.write(
        target,
        edge_lines(found),
        command="obliq graph",
        settings={
            **settings,
            **({} if edges is None else {"edges": str(edges)}),
            "dose": dose,
            "control": control,
            "match": match,
        },
        inputs={"corpus": held.content, **provenance.inputs(edges, source, match)},
        seed=seed if dose is not None or control is not None else None,
        counts=lambda: counts,
    )
    if as_json:
        show.payload({"path": str(target), **manifest})
    else:
        _tell(target, found, counts, held, k, sources=sources is not None)


def _place(corpus: str | None, data: str | None) -> str:
    if bool(corpus) == bool(data):
        raise UserError("name the documents once: obliq graph TASK|FOLDER|FILE, or --data FOLDER")
    return str(corpus or data)


def _check(model: str | None, edges: Path | None, control: str | None, match: str | None, *, mutual: bool) -> None:
    """Refuse what does not go together, before anything is loaded."""
    if (model is None) == (edges is None):
        raise UserError("say where the graph comes from: -m MODEL makes it, --edges FILE reads it")
    if control is not None and control not in CONTROLS:
        raise UserError(f"--control is {control!r}, not {' or '.join(CONTROLS)}{near(control, CONTROLS)}")
    if (control == "matched") != (match is not None):
        raise UserError("--control matched and --match FILE go together: the file says what is matched")
    if mutual and edges is not None:
        raise UserError("--mutual is for a graph that is made with -m: one that is read may lack the other direction")


def _inside(edges: tuple[Edge, ...], held: Distinct) -> tuple[Edge, ...]:
    unknown = next((document for edge in edges for document in edge[:2] if document not in held), None)
    if unknown is not None:
        raise UserError(f"document {unknown!r} of the edges is not in the corpus: name the corpus of the graph")
    return edges


def _make(
    held: Distinct, name: str, k: int, sources: dict[str, frozenset[str]] | None, settings: dict[str, Any],
    mutual: bool, where: tuple[str | None, str, int | None],
) -> Graph:  # fmt: skip
    """Make the graph, and note in `settings` what it was made with."""
    from obliq_models.loading import identity, load, use_engine
    from obliq_models.naming import find
    from obliq_train.graph import knn_graph

    device, engine, workers = where
    entry = find(name)
    if entry.risk:
        show.say(f"{entry.alias}: {entry.risk} (licence: {entry.licence})", stderr=True)
    model = load(entry, device)
    use_engine(model, engine, workers)
    settings |= {"model": entry.name, "revision": entry.revision, "identity": identity(model), "k": k, "mutual": mutual}
    return knn_graph(held, model, k, sources=sources, mutual=mutual)


def _name(model: str | None, edges: Path | None, control: str | None) -> str:
    from obliq_models.naming import find

    first = find(model).alias if model is not None else str(edges and edges.name.partition(".")[0])
    return first if control is None else f"{first}.{control}"


def _tell(
    target: Path, edges: tuple[Edge, ...], counts: dict[str, int], held: Distinct, k: int, *, sources: bool
) -> None:
    anchors = len({edge.anchor for edge in edges})
    show.say(f"{target}: {len(edges):,} edges from {anchors:,} of {len(held.columns):,} distinct texts")
    quiet = {"documents", "distinct texts", "distinct texts with a source", "edges asked for"}
    for what, number in counts.items():
        if number and what not in quiet:
            show.say(f"{number:,} {what.replace('than k', f'than {k}')}")
    if sources and "distinct texts with a source" in counts:
        without = len(held.columns) - counts["distinct texts with a source"]
        if without:
            show.warn(f"{without:,} distinct texts have no source, so edges between them are not forbidden")
