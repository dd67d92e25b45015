"""Mixtures of rows that can be counted by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obliq_eval.errors import UserError
from obliq_train import mixing
from obliq_train.mixing import Mix, Part
from obliq_train.mixture import Mixture

if TYPE_CHECKING:
    from pathlib import Path


def row(query: str, positive: str, *negatives: str, **more: Any) -> dict[str, Any]:
    return {"query": ["Find", query], "pos": [["", positive]], "neg": [["", text] for text in negatives], **more}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), "utf-8")
    return path


def many(path: Path, name: str, count: int) -> Path:
    return write(path / f"{name}.jsonl", *(row(f"{name} {n}", f"document {name} {n}", "other") for n in range(count)))


def mixed(mix: Mix, **options: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    mixture = Mixture(mix, **options)
    found = [json.loads(line) for line in mixture.lines()]
    return found, mixture.all_counts()


def test_files_alone_give_all_their_rows_shuffled(tmp_path: Path) -> None:
    files = [many(tmp_path, "a", 30), many(tmp_path, "b", 20)]
    found, counts = mixed(mixing.of_files(files, seed=1))
    assert sorted(one["query"][1] for one in found) == sorted(
        [*(f"a {n}" for n in range(30)), *(f"b {n}" for n in range(20))]
    )
    assert [one["query"][1] for one in found] != sorted(one["query"][1] for one in found)
    assert (counts["rows"], counts["a: rows"], counts["b: rows"]) == (50, 30, 20)
    assert mixed(mixing.of_files(files, seed=1))[0] == found
    assert mixed(mixing.of_files(files, seed=2))[0] != found
    assert {one["source"] for one in found if one["query"][1].startswith("a")} == {"a"}


def test_both_shapes_are_read_and_one_is_written(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    flat = {"query": "q\u00e9 \\frac", "pos": ["p"], "neg": ["n"], "teacher": {"k": 3}}
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(flat).encode() + b"\r\n\n" + json.dumps(row("q2", "p2")).encode())
    found, counts = mixed(mixing.of_files([file]))
    by_query = {one["query"][1]: one for one in found}
    assert by_query["q\u00e9 \\frac"] == {
        "query": ["", "q\u00e9 \\frac"], "pos": [["", "p"]], "neg": [["", "n"]], "source": "x", "teacher": {"k": 3}
    }  # fmt: skip
    assert counts["x: rows without negatives"] == 1


def test_duplicates_across_parts_go_and_the_first_part_keeps_them(tmp_path: Path) -> None:
    """White space makes no difference; another positive does."""
    first = write(tmp_path / "a.jsonl", row("q", "p", "n"), row("q", "p", "other"), row("q", "p2"))
    second = write(tmp_path / "b.jsonl", row(" q ", "p\n"), row("r", "p"))
    found, counts = mixed(mixing.of_files([first, second]))
    assert sorted((one["source"], one["query"][1].strip(), one["pos"][0][1]) for one in found) == [
        ("a", "q", "p"), ("a", "q", "p2"), ("b", "r", "p")
    ]  # fmt: skip
    assert (counts["a: duplicate rows"], counts["b: duplicate rows"]) == (1, 1)


def test_no_positive_is_among_its_negatives(tmp_path: Path) -> None:
    """By text, and by id where all negatives have one; refused unless the negative is to be taken out."""
    file = write(
        tmp_path / "a.jsonl",
        row("fine", "p", "n"),
        row("text", "the p", "n1", " the  p", "n2"),
        row("id", "long", "short", "n3", pos_ids=["d1"], neg_ids=["d1", "d3"]),
    )
    with pytest.raises(UserError, match=r"2 problems(.|\n)*line 2(.|\n)*line 3"):
        mixed(mixing.of_files([file]))
    found, counts = mixed(mixing.of_files([file], conflicts="repair"))
    negatives = {one["query"][1]: [text for _, text in one["neg"]] for one in found}
    assert negatives == {"fine": ["n"], "text": ["n1", "n2"], "id": ["n3"]}
    assert next(one for one in found if one["query"][1] == "id")["neg_ids"] == ["d3"]
    assert counts["a: rows whose positive is among their negatives, repaired"] == 2


def test_doses_are_drawn_and_a_shortage_is_counted(tmp_path: Path) -> None:
    parts = (Part("a", many(tmp_path, "a", 50), dose=20), Part("b", many(tmp_path, "b", 5), dose=9))
    found, counts = mixed(Mix(parts, total=29))
    assert (counts["a: rows"], counts["b: rows"]) == (20, 5)
    assert (counts["a: rows not drawn"], counts["b: rows short of the dose"]) == (30, 4)
    assert (counts["rows"], counts["rows meant to be there"]) == (25, 29)
    other, _ = mixed(Mix(parts, seed=1))
    assert {one["query"][1] for one in other} != {one["query"][1] for one in found}


def test_weights_share_what_doses_leave(tmp_path: Path) -> None:
    """Total 40, dose 10: 30 in the ratio 2 : 1 are 20 and 10. Without a total the scarcer part decides: 12 : 6."""
    a, b, c = (many(tmp_path, name, size) for name, size in (("a", 50), ("b", 6), ("c", 30)))
    parts = (Part("a", a, weight=2.0), Part("c", c, weight=1.0), Part("b", b, dose=10))
    _, counts = mixed(Mix(parts, total=36))
    assert (counts["a: rows"], counts["c: rows"], counts["b: rows"]) == (20, 10, 6)
    _, counts = mixed(Mix((Part("a", a, weight=2.0), Part("b", b, weight=1.0))))
    assert (counts["a: rows"], counts["b: rows"]) == (12, 6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 5)), min_size=1, max_size=4), st.integers(0, 40))
def test_weights_never_ask_for_more_than_there_is(parts: list[tuple[int, float]], total: int) -> None:
    mixture = Mixture(Mix(tuple(Part(str(n), weight=weight) for n, (_, weight) in enumerate(parts)), total))
    known = [size for size, _ in parts]
    sizes = mixture._sizes(known)
    assert all(0 <= size <= most for size, most in zip(sizes, known, strict=True))
    assert sum(sizes) <= total


def test_replace_leaves_the_other_part_out(tmp_path: Path) -> None:
    a, b = many(tmp_path, "a", 4), many(tmp_path, "b", 3)
    blend, _ = mixed(Mix((Part("a", a), Part("b", b))))
    found, counts = mixed(Mix((Part("a", a), Part("b", b, replaces=("a",)))))
    assert len(blend) == 7
    assert {one["source"] for one in found} == {"b"}
    assert counts["a: replaced"] == 1


def test_no_row_that_is_left_and_texts_that_are_empty(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", row("q", "p", " "), row("", "r"), row("s", "t"))
    with pytest.raises(UserError, match="no row is left"):
        mixed(Mix((Part("a", a, replaces=("b",)), Part("b", a, replaces=("a",)))))
    _, counts = mixed(mixing.of_files([a]))
    assert counts["a: rows with a text that is empty"] == 2


def test_at_most_so_many_rows_for_a_document(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *(row(f"q{n}", f"p{n % 2}") for n in range(5)))
    found, counts = mixed(Mix((Part("a", file, per_document=1, task="T"),)))
    assert sorted(one["query"][1] for one in found) == ["q0", "q1"]
    assert counts["a: rows beyond 1 a document"] == 3
    assert counts["a: rows of T"] == 2
    assert {one["task"] for one in found} == {"T"}


def test_ids_are_resolved_in_the_documents(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", {"_id": "d1", "text": "one text"}, {"_id": "d2", "text": "two text"})
    file = write(tmp_path / "a.jsonl", row("q", "d1", "d2", "written out"))
    found, _ = mixed(Mix((Part("a", file, documents=str(corpus)),)))
    assert found[0]["pos"] == [["", "one text"]]
    assert found[0]["neg"] == [["", "two text"], ["", "written out"]]
    assert found[0]["pos_ids"] == ["d1"]


def test_lengths_and_what_the_trainer_cuts(tmp_path: Path) -> None:
    """Tokens are words here. Queries of 1, 2 and 6 words, limit 5; positives of 3 words, limit 2."""
    file = write(tmp_path / "a.jsonl", *(row(query, "x y z") for query in ("a", "b c", "d e f g h i")))
    _, counts = mixed(mixing.of_files([file]), tokens=lambda text: len(text.split()), limits=(5, 2))
    assert counts["a: query tokens, median"] == 2
    assert counts["a: query tokens, most"] == 6
    assert counts["a: query texts beyond 5 tokens"] == 1
    assert counts["a: positive texts beyond 2 tokens"] == 3
    assert counts["a: query characters, most"] == 11


def test_the_papers_mixture_says_what_is_not_published(tmp_path: Path) -> None:
    """154,361 rows in all, 5,000 of them from the graph (model card, section 4), one query for a document."""
    paper = mixing.read("paper")
    assert paper.total == 154_361
    assert {part.name: part.dose for part in paper.parts if part.published} == {"writing-graph": 5_000}
    assert {part.per_document for part in paper.parts if not part.published} == {1}
    shares = [part["share"] for part in paper.settings()["parts"]]
    assert shares == ["not published"] * 4 + ["5000 rows"]
    with pytest.raises(UserError, match="5 problems"):
        paper.with_files({})
    with pytest.raises(UserError, match=r'no part is called .maths.; did you mean "math"'):
        paper.with_files({"maths": tmp_path})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("total = 3", r"there is no \[\[part\]\]"),
        ('[[part]]\nname = "a"\ndose = 0', "dose is 0, and must be more than 0"),
        ('[[part]]\nname = "a"\nweight = inf', "weight is inf, and must be more than 0 and finite"),
        ('seed = -1\ntotal = 0\n[[part]]\nname = "a"', r"seed is -1, and must be 0 or more(.|\n)*total is 0"),
        ('[[part]]\nname = " "', "name is missing"),
        ('[[part]]\nname = "a"\ndose = 1\nweight = 2', "give one of dose, weight and share"),
        ('[[part]]\nname = "a"\n[[part]]\nname = "a"', "another part has the same name"),
        ('[[part]]\nname = "a"\nreplaces = ["b"]', "replaces 'b', which is no other part"),
        ('[[part]]\nname = "a"\nshare = "half"', 'share can only be "not published"'),
        ('[[part]]\nname = "a"\nweight = 1\n[[part]]\nname = "b"', "give each one of the two"),
        ('conflicts = "ignore"\n[[part]]\nname = "a"', "neither refuse nor repair"),
        ('[[part]]\nname = "a"\nfil = "x"', 'fil is no key here; did you mean "file"'),
        ('[[part]]\nname = "a"\ndose = true', "dose is bool, not int"),
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=told):
        mixing.read(str(path))


def test_a_damaged_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("q", "p"))
    file.write_text(file.read_text("utf-8") + '{"query": ', "utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl, line 2: not a JSON object"):
        mixed(mixing.of_files([file]))
    with pytest.raises(UserError, match="cannot read"):
        mixed(mixing.of_files([tmp_path / "none.jsonl"]))
