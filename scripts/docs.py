"""Runs what the README and docs/*.md show, in order, in one folder each; writes down what came out, or checks it.

    python scripts/docs.py              replaces the output that the pages show
    python scripts/docs.py PAGE ...     the same for some pages

A console block holds commands after `$ `, each with its output; what a page shows may be the beginning of it. A block
of Python or TOML whose first line carries a file name (```` ```python rhythm.py ````) is that file. The first bash
block's part after `&&` is run as well, and nothing else of bash: installing is for the reader.

A comment `<!-- family FAMILY TASK`, lines `MEMBER: what it is`, and `-->` are followed by a table of these members
of a family that the leaderboards hold.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FAMILY = re.compile(r"^(<!-- family (\S+) (\S+)\n(.*?)^-->\n)(?:\|[^\n]*\n)*", re.MULTILINE | re.DOTALL)
FAMILIES = ROOT / "leaderboards" / "mini" / "families"
EXAMPLE = "./examples/own-retriever"


@dataclass(frozen=True)
class Step:
    """One thing to do: write a file, or run a command.

    Args:
        command: What to run; empty for a file.
        shown: What the page says it prints, or the file's content.
        file: The file to write; empty for a command.
    """

    command: str
    shown: str
    file: str = ""


def steps(page: str) -> list[Step]:
    """Return what a page shows, in order."""
    found: list[Step] = []
    for language, name, body in _BLOCK.findall(page):
        if name:
            found.append(Step("", body, name))
        elif language == "bash" and " && " in body and not any(step.command for step in found):
            found.append(Step(body.strip().partition(" && ")[2], ""))
        elif language == "console":
            found += [Step(*part.partition("\n")[::2]) for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]]
    return found


def plain(text: str) -> list[str]:
    """Drop blank lines, trailing spaces and rules; the day of a run is not the page's."""
    lines = (re.sub(r"\d{4}-\d\d-\d\d", "DAY", line).rstrip() for line in text.splitlines())
    return [line for line in lines if line and not set(line) <= {"─", " "}]


def do(step: Step, folder: Path) -> str:
    """Write the file, or run the command and return what it prints on standard output.

    Raises:
        RuntimeError: If the command fails otherwise than with a verdict.
    """
    if step.file:
        (folder / step.file).write_text(step.shown, encoding="utf-8")
        return step.shown
    site = folder / "site"
    # Nothing may be installed into the environment in which this runs: the example package goes into a folder.
    command = step.command.replace(
        f"pip install -q {EXAMPLE}",
        f'cp -r "{ROOT}/{EXAMPLE}" source && "{sys.executable}" -m pip install -q --no-deps --no-build-isolation '
        f'--no-index --target "{site}" ./source',
    )
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "OBLIQ_HOME": str(folder / "home"),
        "MTEB_CACHE": str(folder / "mteb"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("COLUMNS", None)  # tables would be cut to it
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"{step.command}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def with_families(page: str) -> str:
    """Return a page whose tables of families say what their files say."""
    return _FAMILY.sub(lambda found: found[1] + _table(found[2], found[3], found[4]), page)


def _table(family: str, task: str, members: str) -> str:
    told = json.loads((FAMILIES / f"{family}.json").read_text(encoding="utf-8"))
    rows = {row["member"]: row for one in told["tasks"] if one["task"] == task for row in one["rows"]}
    lines = ["| | NDCG@10 | Δ, 95 % interval | Recall@100 |", "|---|---:|---|---:|"]
    for line in members.splitlines():
        member, _, what = line.partition(": ")
        if member not in rows:
            raise SystemExit(f"{family} has no row {member!r} on {task}; it has {', '.join(rows) or 'none'}")
        row, test = rows[member], rows[member]["difference"]
        known = ""
        if test is not None:
            low, high = _signed(test["low"]), _signed(test["high"])
            known = f"{_signed(test['difference'])} [{low}, {high}]"
        lines.append(f"| {what} | {row['ndcg@10']:.3f} | {known} | {row['recall@100']:.3f} |")
    return "\n".join(lines) + "\n"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-0.000", "+0.000")


def update(page: Path) -> None:
    """Replace the output of every command of a page by what it prints now, and its tables by what the files say."""
    text = with_families(page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for step in steps(text):
            printed = do(step, Path(folder))
            if step.file or f"$ {step.command}\n{step.shown}" not in text:
                continue
            wanted = plain(step.shown)
            cut = bool(wanted) and plain(printed)[: len(wanted)] == wanted  # a page may show the beginning alone
            now = step.shown if cut else "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n") + "\n"
            text = text.replace(f"$ {step.command}\n{step.shown}", f"$ {step.command}\n{now}", 1)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        update(Path(name))
        print(f"{name}: written")
