"""Recipes as files: what one says beyond another, single changes, and what is refused."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_train import recipe, recipe_files
from obliq_train.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHOLE = """
purpose = "A test"
[model]
base = "obliq/all-MiniLM-L6-v2"
[lora]
rank = 4
[schedule]
steps = 3
[[part]]
name = "graph"
task = "T"
mechanism = "analogue"
corpus = "OBLIQ-Mini-Writing"
teacher = "stylometry"
k = 3
dose = 50
[[part]]
name = "math"
file = "rows/math.jsonl"
[sources]
"lora.rank" = "chosen on dev"
"schedule.steps" = "a guess"
part.graph.k = "the paper"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a recipe and returns its path; the first is `whole.toml`."""

    def writes(text: str, name: str = "own.toml") -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    writes(WHOLE, "whole.toml")
    return writes


def test_a_file_is_read_with_its_paths_and_defaults(write: Callable[..., str], tmp_path: Path) -> None:
    found = recipe.read(write(WHOLE))
    assert (found.name, found.lora.rank, found.lora.alpha, found.loss.scale) == ("own", 4, 32, 50.0)
    assert found.part[1].file == str(tmp_path / "rows" / "math.jsonl")
    assert found.part[0].corpus == "OBLIQ-Mini-Writing"
    assert found.sources == {"lora.rank": "chosen on dev", "schedule.steps": "a guess", "part.graph.k": "the paper"}


def test_what_extends_another_says_only_what_differs(write: Callable[..., str]) -> None:
    """Tables deeply, parts by name, a new one behind; `epochs` in the place of `steps`, `dose = "all"` of a number."""
    found = recipe.read(
        write(
            'extends = "whole.toml"\npurpose = "B"\n[lora]\nalpha = 8\n[schedule]\nepochs = 2\n'
            '[[part]]\nname = "graph"\nk = 5\ndose = "all"\n[[part]]\nname = "new"\nfile = "new.jsonl"\n'
        )
    )
    assert (found.purpose, found.lora.rank, found.lora.alpha) == ("B", 4, 8)
    assert (found.schedule.steps, found.schedule.epochs) == (None, 2.0)
    assert [part.name for part in found.part] == ["graph", "math", "new"]
    assert (found.part[0].k, found.part[0].teacher, found.part[0].dose) == (5, "stylometry", None)
    assert found.sources == {"lora.rank": "chosen on dev"}, "a value that was changed keeps no other's source"


def test_a_file_takes_the_place_of_a_teacher_and_the_other_way_round(write: Callable[..., str]) -> None:
    """The corpus stays: a file's rows may name its documents by their ids."""
    found = recipe.read(write('extends = "whole.toml"\n[[part]]\nname = "graph"\nfile = "rows.jsonl"\n'))
    assert (bool(found.part[0].file), found.part[0].teacher, found.part[0].corpus) == (True, "", "OBLIQ-Mini-Writing")
    back = recipe.read(write('extends = "own.toml"\n[[part]]\nname = "graph"\nsentences = true\n', "third.toml"))
    assert (back.part[0].file, back.part[0].sentences) == ("", True)
    same = recipe.read(
        write('extends = "whole.toml"\n[[part]]\nname = "graph"\nsentences = false\nfile = ""', "4.toml")
    )
    assert same.part[0].teacher == "stylometry", "what says nothing takes no place"


def test_a_recipe_that_extends_itself_or_nothing_is_refused(write: Callable[..., str]) -> None:
    write('extends = "own.toml"', "a.toml")
    with pytest.raises(UserError, match="extends itself"):
        recipe.read(write('extends = "a.toml"'))
    with pytest.raises(UserError, match=r"own\.toml: extends: no recipe is called 'oblik-ir-3b'; did you mean"):
        recipe.read(write('extends = "oblik-ir-3b"'))
    with pytest.raises(UserError, match=r"cannot read .*none\.toml"):
        recipe.read(write('extends = "none.toml"'))
    with pytest.raises(UserError, match="a text"):
        recipe.read(write("extends = 3"))
    with pytest.raises(UserError, match="no recipe is called 'random-grap'; did you mean \"random-graph\""):
        recipe.read("random-grap")


def test_single_keys_are_changed(write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values as TOML, bare words as text; paths from the working folder, not from the recipe's."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = write(WHOLE)
    monkeypatch.chdir(elsewhere)
    found = recipe.read(
        path,
        [
            "schedule.rate=1e-4", "schedule.epochs=1", "loss.kind=hybrid", "part.graph.dose=all", "part.graph.k=1",
            'lora.targets=["query"]', "part.math.file=m.jsonl", "model.query_prefix='query: '", "run.seed = 7",
        ],
    )  # fmt: skip
    assert (found.schedule.rate, found.schedule.epochs, found.schedule.steps) == (1e-4, 1.0, None)
    assert (found.loss.kind, found.part[0].dose, found.part[0].k, found.run.seed) == ("hybrid", None, 1, 7)
    assert (found.lora.targets, found.model.query_prefix) == (("query",), "query: ")
    assert recipe.read(path, ["model.query_prefix= query: "]).model.query_prefix == "query: ", "its last blank counts"
    with pytest.raises(UserError, match=r"run\.seed: "):
        recipe.read(path, [f"run.seed={2**32}"])
    assert found.part[1].file == str(elsewhere / "m.jsonl")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rate", "not of the form KEY=VALUE"),
        ("schedule..rate=1", "not of the form"),
        ("part.graph=1", "write part.NAME.KEY=VALUE"),
        ("part.graf.k=1", "no part is called 'graf'; did you mean \"graph\""),
        ("part.graph.kk=1", 'part.graph.kk is not a key of a recipe; did you mean "k"'),
        ("rate=1", 'rate is not a key of a recipe; did you mean "schedule.rate"'),
        ("schedule.rat=1", 'schedule.rat is not a key of a recipe; did you mean "rate"'),
        ("k=4", "k is not a key of a recipe; each part has its own k"),
        ("lora.targets=[1", "the value is not TOML"),
        ("run.seed=1\nname=2", "give one value"),
        ("schedule.rate=-1", "schedule.rate: input should be greater than 0"),
        ("loss.kind=margin", "loss.kind: input should be 'infonce', 'margin-mse' or 'hybrid'"),
        ("run.seed=true", "run.seed: input should be a valid integer"),
        ("part.graph.positives=matched:", "part.graph.positives is 'matched:', not neighbours, random or matched"),
        ("part.math.positives=random", "part.math.positives: random replaces a teacher's neighbours"),
        ("part.math.apart=address", "part.math.apart keeps a teacher's edges apart"),
        ("part.graph.corpus=''", "part.graph: teacher needs the corpus"),
        ("part.graph.only=train", "part.graph.only is 'train', not FIELD=VALUE"),
        ("part.graph.only='part='", "part.graph.only is 'part=', not FIELD=VALUE"),
        ("part.math.only='part=train'", "part.math.only is 'part=train', not FIELD=VALUE of a corpus"),
        ('leave_out.tasks=["t"]', "leave_out.tasks: no part has the task 't'; did you mean \"T\""),
        ('leave_out.parts=["maths"]', "leave_out.parts: no part has the name 'maths'; did you mean \"math\""),
        ('leave_out.parts=["math", "graph"]', "leave_out leaves no part to train on"),
        ('sources={"lora.rang" = "x"}', 'sources: lora.rang is no key of this recipe; did you mean "lora.rank"'),
        ('sources={"part.grap.k" = "x"}', 'sources: part.grap.k is no key of this recipe; did you mean "part.graph.k"'),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(write: Callable[..., str], text: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        recipe.read(write(WHOLE), [text])
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[schedule]\nsteps = 1\nepochs = 1.0", "schedule: give one of epochs and steps"),
        ("[schedule]\nrate = 0.1", "schedule: give one of epochs and steps"),
        ('part = "x"', "part: each part is a table of its own, under [[part]]"),
        ('[part]\nname = "x"', "part: each part is a table of its own, under [[part]]"),
        ("[[part]]\nk = 1", "part.1.name is missing"),
        ('[[part]]\nname = "a b"', "a name is made of letters"),
        ('[[part]]\nname = "a/../b"', "a name is made of letters"),
        ('[[part]]\nname = "a"\n[[part]]\nname = "a"', "part.a: another part has the same name"),
        ('[[part]]\nname = "a"\nfile = "f"\nteacher = "bm25"\ncorpus = "c"', "part.a: file and teacher are given"),
        ('[[part]]\nname = "a"\ncorpus = "c"', "nothing that is done with it"),
        ('[[part]]\nname = "a"\nsentences = true', "part.a: sentences needs the corpus"),
        ("model = 3", "model: "),
        ("", "there is no [[part]]"),
        ("", "purpose is missing"),
    ],
)
def test_files_that_are_no_recipes(write: Callable[..., str], text: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        recipe.read(write(text))
    assert told in str(error.value)


def test_what_means_nothing_for_a_reranker_is_refused() -> None:
    """It makes no vector and learns lists; its base, its length and its schedule are read."""
    with pytest.raises(UserError) as error:
        recipe.read("distilled-listwise", ["loss.scale=2", "model.pooling=cls", "model.document_length=9"])
    assert str(error.value).count("means nothing for a reranker") == 2
    assert recipe.read("distilled-listwise", ["model.document_length=9", "schedule.rate=1"]).model.document_length == 9
    assert recipe.read("no-distillation", ["loss.scale=2"]).loss.scale == 2


def test_all_problems_are_told_at_once(write: Callable[..., str]) -> None:
    bad = (
        WHOLE.replace("rank = 4", "rang = 4").replace("k = 3", "k = 0").replace('task = "T"', 'task = "T"\nlense = ""')
    )
    with pytest.raises(UserError) as error:
        recipe.read(write(bad), ["schedule.epochs=-1", "part.none.k=1"])
    for told in (
        "part is called 'none'",
        "lora.rang",
        "part.graph.k:",
        'lense is not a key of a recipe; did you mean "lens"',
    ):
        assert told in str(error.value)


def test_the_digest_is_of_what_changes_the_weights(write: Callable[..., str]) -> None:
    path = write(WHOLE)
    same = ["purpose='x'", "licence='y'", "risk='z'", "run.log_steps=9", "run.save_steps=9", "run.keep_checkpoints=9"]
    other = [
        "lora.rank=5",
        "run.seed=1",
        "part.graph.seed=1",
        "loss.mask=false",
        'leave_out.parts=["math"]',
        "run.precision=bf16",
    ]
    digest = recipe.read(path).digest
    assert {recipe.read(path, [text]).digest for text in same} == {digest}
    assert len({digest, *(recipe.read(path, [text]).digest for text in other)}) == 1 + len(other)
    assert recipe.read(write(WHOLE, "renamed.toml")).digest == digest


def test_a_small_version_is_the_files_own_or_its_changes_over_the_small_recipe(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the bundled recipes are: a base with two parts, its small version with one of them, and variants."""
    monkeypatch.setattr(recipe_files, "FOLDER", tmp_path)
    (tmp_path / "whole.toml").rename(tmp_path / "obliq-ir-3b.toml")
    small = WHOLE.replace("steps = 3", "steps = 48").partition('[[part]]\nname = "math"')[0]
    write(small, "obliq-ir-mini.toml")
    write('extends = "obliq-ir-3b"\npurpose = "one"\n[[part]]\nname = "graph"\nk = 1\n'
          '[sources]\n"part.graph.k" = "H.1"\n"part.math.file" = "ours"', "k1.toml")  # fmt: skip
    write('extends = "k1"\npurpose = "deep"\n[lora]\nrank = 2', "deep.toml")
    write('extends = "obliq-ir-3b"\n[[part]]\nname = "math"\nlens = "generic"', "generic.toml")
    write('extends = "obliq-ir-mini"\n[schedule]\nsteps = 7', "mini-k1000.toml")
    write('extends = "obliq-ir-3b"', "k1000.toml")
    found = recipe.read("k1", data="mini")
    assert (found.name, found.purpose, found.part[0].k, found.schedule.steps) == ("mini-k1", "one", 1, 48)
    assert [part.name for part in found.part] == ["graph"]
    assert found.sources == {"part.graph.k": "H.1"}
    deep = recipe.read("deep", data="mini")
    assert (deep.lora.rank, deep.part[0].k, deep.name) == (2, 1, "mini-deep")
    assert recipe.read("k1000", data="mini").schedule.steps == 7
    assert recipe.read("mini-k1000", data="mini").name == "mini-k1000"
    assert recipe.read("obliq-ir-3b", data="mini") == recipe.read("obliq-ir-mini")
    with pytest.raises(UserError, match="changes the part 'math', and obliq-ir-mini has none"):
        recipe.read("generic", data="mini")
    with pytest.raises(UserError, match="there is no recipe obliq-ir-tiny"):
        recipe.read("k1", data="tiny")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.toml").write_text(WHOLE, "utf-8")
    with pytest.raises(UserError, match="extends no recipe"):
        recipe.read(str(elsewhere / "mine.toml"), data="mini")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBER = st.floats(1e-12, 1e12)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Draw a recipe whose texts hold anything that a TOML file can."""
    names = draw(st.lists(st.from_regex(r"[\w][\w-]{0,6}", fullmatch=True), min_size=1, max_size=3, unique=True))
    parts: list[dict[str, Any]] = [
        {
            "name": name, "task": draw(TEXT), "lens": draw(TEXT), "dose": draw(st.none() | st.integers(1, 10**12)),
            "distils": draw(st.booleans()), "file": draw(st.sampled_from(["", "/rows of \"\\ \u00e9.jsonl"])),
        }
        for name in names
    ]  # fmt: skip
    return Recipe.model_validate(
        {
            "name": draw(TEXT), "purpose": draw(TEXT.filter(bool)), "licence": draw(TEXT), "risk": draw(TEXT),
            "model": {"base": "owner/name", "query_prefix": draw(TEXT), "document_prefix": draw(TEXT)},
            "lora": {"targets": tuple(draw(st.lists(TEXT, max_size=3)))},
            "loss": {"scale": draw(NUMBER), "mask": draw(st.booleans())},
            "schedule": draw(st.builds(dict, epochs=NUMBER) | st.builds(dict, steps=st.integers(1, 10**9))),
            "part": tuple(parts),
            "sources": draw(st.dictionaries(st.sampled_from(["model.base", "lora", f"part.{names[0]}.k"]), TEXT)),
        }
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_a_resolved_recipe_reads_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, one: Recipe) -> None:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(one.to_toml(), "utf-8")
    assert recipe.read(str(path)) == one
    assert recipe.read(str(path)).digest == one.digest
    assert "extends" not in tomllib.loads(one.to_toml())


def test_bundled_recipes_read_back_from_another_folder(tmp_path: Path) -> None:
    for name in recipe.names():
        (tmp_path / "recipe.toml").write_text(recipe.read(name).to_toml(), "utf-8")
        assert recipe.read(str(tmp_path / "recipe.toml")) == recipe.read(name), name
