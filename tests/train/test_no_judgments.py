"""No function of `obliq_train` can receive judgments: nothing that reads or holds them is imported there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import obliq_train

FOLDER = Path(obliq_train.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
FORBIDDEN = {
    "Judgments", "Dataset", "Loaded", "load", "open_source", "open_mirror", "read_qrels", "read_queries", "open_layout",
    "assemble", "read_exclusions", "read_groups",
}  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_nothing_that_holds_judgments_is_imported(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("obliq_eval"):
            assert not FORBIDDEN & {name.name for name in node.names}, ast.unparse(node)
            assert not (node.module or "").startswith(("obliq_eval.analyses.purity", "obliq_eval.pairs"))
        elif isinstance(node, ast.Import):
            assert not [name.name for name in node.names if name.name.startswith("obliq_eval")], ast.unparse(node)


def test_the_test_sees_the_package() -> None:
    assert {"synthesis.py", "graph.py", "negatives.py", "mixture.py"} <= {path.name for path in MODULES}
