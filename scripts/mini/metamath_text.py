"""English from Metamath comments: markup, references, people and the names of techniques taken out."""

from __future__ import annotations

import html
import re
from itertools import dropwhile
from typing import TYPE_CHECKING

from .metamath_techniques import TECHNIQUES, Technique

if TYPE_CHECKING:
    from collections.abc import Iterable

MATH = "X"
MARK = "\x01"  # a label or a bibliography reference

SHORTEST = 8  # English words in a text; shorter comments say too little to be read for a proof
MATH_SHARE = 0.3  # formulas per English word, at most; beyond that only the formulas carried the sense

TABLE = re.compile(r"<(?:table|tr|td|th|li|ul|ol|br)\b", re.IGNORECASE)
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
CREDIT = re.compile(r"\(\s*(?:[^()]|\([^()]*\))*?(?:\d{1,2}-[A-Z][a-z]{2}-\d{2,4}|discouraged)(?:[^()]|\([^()]*\))*\)")
FORMULA = re.compile(r"`(?:[^`]|``)+`")
REFERENCE = re.compile(r"~\s+\S+?(?=[.,;:)]*(?:\s|$))|\[[A-Z][^\]\s]*\](?:\s+p+\.\s*\w+(?:[-,]\s?\d+)*)?")
ASIDE = re.compile(rf"\s*\([^()]*{MARK}[^()]*\)")
MARKS = rf"{MARK}(?:(?:,| and| or|, and)\s+{MARK})*"
POINTER = re.compile(rf",\s+(?:which (?:is|are) )?(?:see|cf\.|compare|compare with)(?: also)?\s+{MARKS}", re.IGNORECASE)
ABBREVIATIONS = "".join(rf"(?<!\b{word}\.)" for word in (r"i\.e", r"e\.g", "cf", "vs", "resp", "p", "pp"))
SENTENCE = re.compile(rf"{ABBREVIATIONS}(?<=[.!?])\s+|(?<=[.!?][)\"])\s+", re.IGNORECASE)
WHOLE = re.compile(r"(?:[A-Z0-9\"']|\((?=[A-Z]))[^\x01]*[.!?][)\"']*$")
EMPHASIS = re.compile(r"(?<![\w])_([^_\s](?:[^_]*[^_\s])?)_(?![\w])")
WORD = re.compile(r"[A-Za-z][a-z]+(?:['-][a-z]+)*")

# Sentences about the database itself, not about mathematics.
HOUSEKEEPING = re.compile(
    r"\b(?:metamath|labels?|hypothes[ie]s builder|TODO|obsolete|(?-i:OLD)|deprecated|shorten\w*|set\.mm|mathbox\w*|"
    r"minimi[sz]er?|wff|dv|proofs?|editorial|JFM|contributed|revised|https?|notational convention|typesetting|lemmas?|"
    r"no longer|exercise|chapter|p\. \d+|(?:theorem|proposition|definition|axiom|equation|part) [*(]?\d[\w.()*-]*|"
    r"(?:used|useful) (?:to|in|for)|distinct variables?|bound-variable)\b",
    re.IGNORECASE,
)

# The contributors of set.mm, by name and by initials.
PEOPLE = (
    r"Abernethy|Allan|Arnoux|Arpiainen|Ben-Naim|Bush|Carneiro|Cernatescu|Chapman|Drahflow|Dunaev|Fenton|Hankins|Hart|"
    r"Harvey|Chen-Pang|Hoffman|Jerry|Jaroszewicz|Jubin|Kingdon|Lammen|Lang|Leahy|Levien|Liné|Frederic Line|Longton|"
    r"Mascellani|Madsen|Medina|Megill|Mykola|Mostovenko|O'Cat|O'Rear|OpenAI|Orendorff|Pennant|Penner|rpenner|Polu|"
    r"Purinton|Rodriguez|Salmon|Sare|Schmidt|Siliprandi|Skresanov|Udandy|Vekens|Wheeler|Witte|Yan|Zheng|"
    r"NM|AV|BJ|FL|RP|ML|SO|SF|JJ|DAW|DA|SA|TA|JA|JB|JBN|GB|MC|FC|PC|DF|GD|JGH|AH|DH|CH|JH|BL|RFL|GL|GM|JM|RM|DM|MM|"
    r"MO|OA|JO|JK|JPP|WL|SP|JP|SR|ATS|AS|ES|GS|SS|JU|RW|JY|FZ|NB"
)
PERSON = re.compile(rf"(?<![\w-])(?:{PEOPLE})(?:'s)?(?![\w-])")

# A first sentence that begins so leans on one that is gone.
BACKWARD = re.compile(
    r"(?:This|These|That|Those|Such|It|In particular|In this|In other words|Thus|So|Hence|Then|Therefore|Note|Now|And|"
    r"But|However|Also|Here|Since|By|Again|Similarly|Conversely|Moreover|Otherwise|Our|We|\()(?!\w)"
)

# Said in passing about the proof, and not at a sentence's start; the sentence stays whole without it.
MEANS = (
    r"(?:the )?(?:axioms? of (?:countable |dependent )?choice|(?:axiom of )?(?:regularity|foundation)|"
    r"(?:mathematical |finite |transfinite |strong |complete )*induction(?: on (?:the )?[\w' ]+?)?)"
)
WAY = rf"(?:(?:proved|proven|shown|derived) )?(?:by|using|via|with|without|without using) {MEANS}"
PASSING = re.compile(rf"\s\({WAY}\)|(?<=\w),?\s{WAY}(?=[.,;])", re.IGNORECASE)


def words(text: str) -> list[str]:
    """Return the English words of a cleaned text: two letters at least, formulas not among them."""
    return WORD.findall(text)


def strip_markup(comment: str) -> str:
    """Return a comment's sentences without markup, references, credits and people.

    A formula becomes the token `X`. A parenthesis or a `see also` that only points to other theorems goes;
    any other sentence that names a label, a book, a contributor or the database's own affairs goes as a whole,
    so that no hole is left in a sentence.

    Args:
        comment: The text between `$(` and `$)`.

    Returns:
        The remaining sentences, one space between; empty where the comment is a table or nothing remains.
    """
    if TABLE.search(comment):
        return ""
    text = CREDIT.sub(" ", " ".join(comment.split()))
    text = REFERENCE.sub(MARK, FORMULA.sub(f" {MATH} ", text))
    text = html.unescape(TAG.sub(" ", text)).replace("``", "'").replace("~~", "~").replace("[[", "[")
    text = POINTER.sub("", ASIDE.sub("", EMPHASIS.sub(r"\1", text)))
    return " ".join(_keep(SENTENCE.split(" ".join(text.split()))))


def _keep(sentences: Iterable[str]) -> list[str]:
    """Drop the sentences that point outside the mathematics or are fragments, and tidy what remains."""
    kept = []
    for sentence in sentences:
        if HOUSEKEEPING.search(sentence) or PERSON.search(sentence):
            continue
        tidy = re.sub(r"\s+([.,;:)?!])", r"\1", re.sub(r"\(\s+", "(", sentence))
        tidy = re.sub(rf"\b{MATH}(?:\s+{MATH}\b)+", MATH, tidy)
        if WHOLE.fullmatch(tidy) and tidy.count("(") == tidy.count(")") and len(words(tidy)) >= 3:
            kept.append(tidy)
    return kept


def hide(text: str, techniques: Iterable[Technique] = TECHNIQUES) -> str:
    """Take the names of all techniques out of a text.

    What is said in passing (`, proved by induction`) is cut out; a sentence that still holds a word of any
    technique's table is dropped, and so are first sentences that lean on what stood before them.

    Args:
        text: The result of `strip_markup`.
        techniques: Whose words are to go.

    Returns:
        The remaining sentences.
    """
    patterns = [technique.pattern for technique in techniques]
    sentences = SENTENCE.split(PASSING.sub("", text))
    kept = [sentence for sentence in sentences if not any(pattern.search(sentence) for pattern in patterns)]
    return " ".join(dropwhile(BACKWARD.match, kept))


def reads_as_english(text: str) -> bool:
    """Say whether enough is left to be read: words enough, and not mostly formulas."""
    count = len(words(text))
    formulas = len(re.findall(rf"\b{MATH}\b", text))
    return count >= SHORTEST and formulas <= MATH_SHARE * count
