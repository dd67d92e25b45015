"""Tables in Markdown and LaTeX hold whatever a name holds."""

from __future__ import annotations

import pytest

from obliq_eval.markup import escape_latex, escape_markdown, latex, markdown

ROWS = [["a|b", 0.12345, None], ["<script>", 2, "x_1"]]


def test_markdown_table() -> None:
    assert markdown(("system", "NDCG@10", "note"), ROWS, "T_1").splitlines() == [
        r"**T\_1**",
        "",
        "| system | NDCG&#64;10 | note |",
        "| --- | ---: | --- |",
        "| a\\|b | 0.123 | \u2013 |",
        r"| &lt;script&gt; | 2 | x\_1 |",
    ]


def test_latex_table() -> None:
    lines = latex(("system", "NDCG@10", "note"), ROWS, "50 % & more").splitlines()
    assert r"\caption{50 \% \& more}" in lines
    assert r"\begin{tabular}{lrl}" in lines
    assert r"a\textbar{}b & 0.123 & -- \\" in lines
    assert r"\textless{}script\textgreater{} & 2 & x\_1 \\" in lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*b* [l](u) `c` #1 ~s~ $m$", r"\*b\* \[l\](u) \`c\` \#1 \~s\~ \$m\$"),
        ("two\nlines\t\\", r"two lines \\"),
        ("&lt; https://h www.h @me", "&amp;lt; https&#58;//h www&#46;h &#64;me"),
    ],
)
def test_markdown_is_shown_as_it_is(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


def test_latex_is_set_as_it_is() -> None:
    assert escape_latex("a\\b{c}^~\n#$") == r"a\textbackslash{}b\{c\}\textasciicircum{}\textasciitilde{} \#\$"
