"""From a recipe's parts to the rows that it trains on: built or taken, written once, found again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from obliq_eval import show
from obliq_eval.data.files import lines as text_lines
from obliq_eval.errors import SHOWN, UserError, near, raise_all
from obliq_models.naming import find
from obliq_models.retrievers import bm25
from obliq_train import lineage, mixing, parts, provenance
from obliq_train.mixing import Mix
from obliq_train.mixture import Mixture
from obliq_train.pairs import kind_of
from obliq_train.parts import Built, Corpora, located
from obliq_train.recipe_check import NEIGHBOURS
from obliq_train.recipe_files import PACKAGE
from obliq_train.rows import Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obliq_train.distinct import Distinct
    from obliq_train.recipe import Part, Recipe

NONE: Mapping[str, Path] = MappingProxyType({})
SEED = 0
"""Of the order in the file of rows: it is the same for all training seeds, which order rows again."""
OTHER = "not:"


@dataclass(frozen=True)
class Data:
    """What is trained on.

    Args:
        rows: All rows, in the form of `rows.Row`, each with its part's name as `source`.
        edges: By part, the whole graph that its rows were drawn from, before the dose: the teacher's, or the control's.
        manifest: Of `rows`; its `content` is the SHA-256 of the rows.
        counts: Whatever was drawn, left out, passed over or not known, by name.
    """

    rows: Path
    edges: Mapping[str, Path]
    manifest: Mapping[str, Any]
    counts: Mapping[str, int] = field(default_factory=dict)


def prepare(recipe: Recipe, work: Path, files: Mapping[str, Path] = NONE) -> Data:
    """Write the rows of a recipe; parts that were finished before, and have not changed since, are found again.

    Args:
        recipe: The recipe.
        work: Folder of the run: `rows.jsonl` goes there, rows and graphs of single parts into its `data`.
        files: `{part: file of rows}`, in the place of what the recipe says.

    Raises:
        UserError: If files are missing, all of them named at once; if rows come from another lens or generator than
            the recipe asks for, have no positive, or one among their negatives; if there is less than a dose; or if
            documents or a teacher cannot be had.
    """
    check(recipe, files)
    given = {part.name: _file(part, files) for part in recipe.used}
    for name in given:
        provenance.check_output(work / "data" / f"{name}.rows.jsonl", *given.values())
    provenance.check_output(work / "rows.jsonl", *given.values())
    counts = dict[str, int]()
    raise_all(
        [told for part in recipe.used if (file := given[part.name]) for told in _unlike(recipe, part, file, counts)],
        f"the rows of {recipe.name}",
    )
    corpora, built = Corpora(), dict[str, Built]()
    for part in recipe.used:
        file = given[part.name]
        if file is None:
            built[part.name] = parts.build(part, recipe.negatives, work / "data", corpora)
        else:
            built[part.name] = _taken(part, file, work / "data", corpora)
        counts |= {f"{part.name}: {what}": number for what, number in built[part.name].counts.items()}
    manifest = _mixed(recipe, work / "rows.jsonl", built)
    edges = {name: one.edges for name, one in built.items() if one.edges is not None}
    return Data(work / "rows.jsonl", edges, manifest, {**counts, **manifest["counts"]})


def check(recipe: Recipe, files: Mapping[str, Path]) -> None:
    """Refuse a recipe whose rows cannot be read or built, for files are missing or named wrongly.

    Raises:
        UserError: If it is one; all that is wrong at once.
    """
    raise_all([*_names(recipe, files), *missing(recipe, files)], f"the rows of {recipe.name}")


def _names(recipe: Recipe, files: Mapping[str, Path]) -> Iterator[str]:
    """Yield what is wrong with the names of given files."""
    known, used = ([part.name for part in some] for some in (recipe.part, recipe.used))
    for name in files:
        if name not in known:
            yield f"no part is called {name!r}{near(name, known)}"
        elif name not in used:
            yield f"part {name!r} is left out by the recipe, so its file would not be read"


def _file(part: Part, files: Mapping[str, Path]) -> Path | None:
    return files.get(part.name) or (Path(located(part.file)) if part.file else None)


def missing(recipe: Recipe, files: Mapping[str, Path]) -> Iterator[str]:
    """Yield what is not there and keeps rows from being read or built, one sentence each."""
    if recipe.negatives.variant not in bm25.VARIANTS:
        yield f"negatives.variant is {recipe.negatives.variant!r}, not {' or '.join(bm25.VARIANTS)}"
    for part in recipe.used:
        file, place = _file(part, files), f"part {part.name!r}"
        if part.corpus.startswith(PACKAGE) and not Path(located(part.corpus)).is_file():
            yield f"{place}: {part.corpus} is no file that ships with this package"
        elif Path(part.corpus).is_absolute() and not Path(part.corpus).exists():
            yield f"{place}: its corpus {part.corpus} is not there"
        if file is not None:
            if not file.is_file():
                yield f"{place}: its file {file} is not there: make it, or --file {part.name}=FILE"
        elif not part.teacher and not part.sentences:
            yield f"{place} has no file: --file {part.name}=FILE"
        elif recipe.loss.kind != "infonce" or recipe.trains == "reranker":
            what = "a reranker" if recipe.trains == "reranker" else recipe.loss.kind
            yield (
                f"{place} is built here, and {what} needs a cross-encoder's scores in every row, as `obliq negatives "
                f"--scores MODEL` writes them: --file {part.name}=FILE"
            )
        elif part.teacher and part.anchor == "description" and not Path(part.descriptions or "?").is_file():
            lacks = f"{part.descriptions} is not there" if part.descriptions else "there are no descriptions"
            yield (
                f"{place}: its anchors are descriptions, and {lacks}: --set part.{part.name}.descriptions=FILE, or "
                f"--file {part.name}=FILE with rows"
            )


def _unlike(recipe: Recipe, part: Part, file: Path, counts: dict[str, int]) -> Iterator[str]:
    """Yield in what a part's file is not what the recipe asks for; what is not known of it is counted."""
    place = f"part {part.name!r}: {file}"
    if (kind := _kind(file)) is not None:
        yield f"{place} holds {kind}, not rows: `obliq negatives {file.name} --data CORPUS` makes them"
        return
    if next(text_lines(file), None) is None:
        yield f"{place} has no row: leave the part out, or give another file"
        return
    for key, wanted, found in (
        ("lens", part.lens, lineage.told(file, "lens")),
        ("generator", part.generator, lineage.told(file, "llm", "model")),
    ):
        if wanted and not found:
            counts[f"{part.name}: files whose {key} is not known"] = 1
        for one in sorted(found) if wanted else ():
            if not _agrees(one, wanted):
                yield f"{place} has the {key} {one!r}, and the recipe asks for {wanted!r}"
    if part.teacher:
        yield from _graph_unlike(part, file, place, counts)
    if recipe.loss.kind != "infonce":
        yield from _unscored(file, place, recipe.loss.kind)


def _graph_unlike(part: Part, file: Path, place: str, counts: dict[str, int]) -> Iterator[str]:
    control = "random" if part.positives == "random" else "matched"
    wanted = {
        "k": str(part.k), "model": find(part.teacher).name, "control": control if part.positives != NEIGHBOURS else "",
    }  # fmt: skip
    found = {key: lineage.told(file, key) for key in wanted}
    if not found["model"]:
        counts[f"{part.name}: files whose graph is not known"] = 1
    if found["control"] and not wanted["control"]:
        yield f"{place} is a control ({', '.join(sorted(found['control']))}), and the recipe asks for the teacher's own"
    elif wanted["control"] and found["model"] and not any(one.partition(":")[0] == control for one in found["control"]):
        yield f"{place} is no control, and the recipe asks for positives = {part.positives!r}"
    for key in ("k", "model"):
        for one in sorted(found[key] - {wanted[key]}):
            yield f"{place} comes from a graph whose {key} is {one}, and the recipe asks for {wanted[key]}"


def _kind(file: Path) -> str | None:
    """Return what a file holds that is plainly no rows."""
    try:
        kind = kind_of(file)
    except UserError:  # what is wrong with its lines is told where they are read
        return None
    return {"synthetic": "synthetic queries", "edges": "edges"}.get(kind)


def _agrees(found: str, wanted: str) -> bool:
    """Return whether a name is the wanted one, whatever its organisation and case; or, after `not:`, another one."""
    name, other = (text.rpartition("/")[2].lower() for text in (found, wanted.removeprefix(OTHER)))
    return not name.startswith(other) if wanted.startswith(OTHER) else name == other


def _unscored(file: Path, place: str, loss: str) -> Iterator[str]:
    wrong = [number for number, row in enumerate(read_rows(file), 1) if row.scores is None]
    if wrong:
        some = ", ".join(f"{number:,}" for number in wrong[:SHOWN]) + (" …" if len(wrong) > SHOWN else "")
        yield (
            f"{place}: {loss} needs a cross-encoder's score of each document, and {len(wrong):,} rows lack them "
            f'(rows {some}): put them under "scores", as {{"pos": [...], "neg": [...]}}'
        )


def _taken(part: Part, file: Path, folder: Path, corpora: Corpora) -> Built:
    """Return a part whose rows are there already, or some of them."""
    edges = lineage.graph_of(file) if part.positives == NEIGHBOURS else None
    texts = corpora.of(part).content if _documents(part) else ""
    if part.only:
        file = _within(part, file, folder, corpora.of(part))
    if part.dose is None:
        return Built(file, edges, {}, texts)
    mixture = Mixture(Mix((_mix_part(part, file, part.dose),), seed=part.seed))

    def lines() -> Iterator[str]:
        yield from mixture.lines()
        if short := mixture.counts[f"{part.name}: rows short of the dose"]:
            there = (part.dose or 0) - short
            raise UserError(
                f"part {part.name!r}: the dose is {part.dose:,}, and {file} has {there:,} different rows: "
                f"part.{part.name}.dose=all takes them all"
            )

    path = folder / f"{part.name}.rows.jsonl"
    made = parts.step(
        path, lines, settings={"part": part.name, "task": part.task, "dose": part.dose, "documents": part.corpus},
        inputs={str(file): provenance.sha256(file), **({"corpus": texts} if texts else {})}, seed=part.seed,
        counts=lambda: {"rows not drawn": mixture.counts[f"{part.name}: rows not drawn"]},
    )  # fmt: skip
    return Built(path, edges, made["counts"], texts)


def _within(part: Part, file: Path, folder: Path, documents: Distinct) -> Path:
    """Return a file of the rows whose documents are all among those that the part uses."""
    path, counts = folder / f"{part.name}.only.jsonl", Counter[str]()

    def known(row: Row) -> bool:
        named = (*row.positive_ids, *row.negative_ids) or [one.text for one in (*row.positives, *row.negatives)]
        return all(one in documents or documents.find(one) is not None for one in named)

    def lines() -> Iterator[str]:
        for row in read_rows(file):
            kept = known(row)
            counts["rows" if kept else "rows of other documents"] += 1
            if kept:
                yield row.to_json() + "\n"
        if not counts["rows"]:
            raise UserError(f"part {part.name!r}: no row of {file} is about documents with {part.only}")

    parts.step(
        path, lines, settings={"part": part.name, "only": part.only, "documents": part.corpus},
        inputs={str(file): provenance.sha256(file), "corpus": documents.content}, counts=lambda: counts,
    )  # fmt: skip
    return path


def _documents(part: Part) -> str:
    """Return the corpus whose documents the rows of a part's file name by their ids; empty for none."""
    return located(part.corpus) if part.corpus and not part.teacher and not part.sentences else ""


def _mix_part(part: Part, file: Path, dose: int | None = None) -> mixing.Part:
    return mixing.Part(part.name, file, part.task, dose, documents=_documents(part))


def _mixed(recipe: Recipe, path: Path, built: Mapping[str, Built]) -> dict[str, Any]:
    """Write all rows into one file, without duplicates, and return its manifest."""
    mix = Mix(tuple(_mix_part(part, built[part.name].rows) for part in recipe.used), seed=SEED)
    mixture = Mixture(mix)
    return parts.step(
        path,
        lambda: show.track(mixture.lines(), "rows"),
        settings={**mix.settings(), "files": {name: _inside(one.rows, path.parent) for name, one in built.items()}},
        inputs={name: provenance.sha256(one.rows) for name, one in built.items()}
        | {f"{name}: corpus": one.texts for name, one in built.items() if one.texts},
        seed=SEED,
        counts=mixture.all_counts,
    )


def _inside(path: Path, folder: Path) -> str:
    """Return a path as it is seen from a folder that holds it, so that the folder may be moved."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
