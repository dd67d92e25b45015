"""Submissions on disk: what a system is, its runs, and what each query scored."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.errors import UserError, raise_all
from obliq_eval.leaderboard.entries import Exposure
from obliq_eval.manifest import Manifest, Who
from obliq_eval.metrics import Panel
from obliq_eval.runs import MANIFEST, RUN, StoredRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ABOUT, SCORES = "submission.toml", "scores.json"
__all__ = ["ABOUT", "FOLDERS", "MANIFEST", "RUN", "SCORES", "About", "Submitted", "load_submissions", "read_about"]
FOLDERS = {"submissions": tuple(OFFICIAL), "mini": tuple(MINI)}
"""Folders of a leaderboard with the tasks that each may hold: official and mini runs are never in one."""
LONGEST = 2000  # characters of a description
_LINK = re.compile(r"https?://[^\s<>\"'`\\|()\[\]{}]+")


@dataclass(frozen=True)
class About:
    """What `submission.toml` says about a system.

    Args:
        system: Its name: an alias or a full name.
        description: What it is, in a few sentences.
        licence: Licence of its weights or code.
        label: Name as shown; by default `system`.
        links: Addresses with more about it.
        ran_by: Who ran it: `submitter`, `us` (this project) or `paper` (the authors of the system's paper).
        oracle: Whether it is shown judgments.
        exposure: What it had seen of the tasks before; absent where nobody says.
    """

    system: str
    description: str
    licence: str
    label: str = ""
    links: tuple[str, ...] = ()
    ran_by: Who = "submitter"
    oracle: bool = False
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def slug(self) -> str:
        """Name of the submission's folder."""
        return re.sub(r"[^a-z0-9.-]+", "-", self.system.lower()).strip("-.")[:60]

    def problems(self) -> Iterator[str]:
        """Yield what is missing or cannot be shown, one sentence each."""
        for name in ("system", "description", "licence"):
            if not getattr(self, name).strip():
                yield f"the {name} is missing; state it in {ABOUT} or with --{name}"
        if self.system.strip() and not self.slug:
            yield f"the system {self.system!r} needs a Latin letter or digit in its name: its folder is named by it"
        for name in ("system", "label", "licence", "description"):
            value = getattr(self, name)
            if not all(c.isprintable() or (c == "\n" and name == "description") for c in value):
                yield f"the {name} holds control characters; write it as plain text"
            if len(value) > (limit := LONGEST if name == "description" else 100):
                yield f"the {name} has {len(value):,} characters; at most {limit:,} are shown"
        for link in self.links:
            if not _LINK.fullmatch(link):
                yield f"the link {link!r} is not a plain http:// or https:// address"

    def to_toml(self) -> str:
        """Return the content of `submission.toml`."""
        fields: dict[str, Any] = {
            "system": self.system, "label": self.label, "description": self.description, "licence": self.licence,
            "links": list(self.links), "ran_by": self.ran_by, "oracle": self.oracle,
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value != ""]
        known = {key: value for key, value in vars(self.exposure).items() if value is not None}
        lines += ["", "[exposure]", *(f"{key} = {json.dumps(value)}" for key, value in known.items())] if known else []
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Submitted:
    """One run of a submission.

    Args:
        about: The system.
        folder: Holds `run.parquet`, `manifest.json` and `scores.json`.
        manifest: What made the run.
        panels: `{judgments: panel}`: what each query scored when the run was added.
    """

    about: About
    folder: Path
    manifest: Manifest
    panels: Mapping[str, Panel]

    @property
    def stored(self) -> StoredRun:
        """The run, read and checked against its manifest."""
        return StoredRun(self.folder, self.manifest)


def read_about(path: Path) -> About:
    """Read `submission.toml`; `About.problems` says what is wrong with its content.

    Raises:
        UserError: If it cannot be read, is not TOML, or has a field that is unknown or of a wrong type.
    """
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error})") from error
    if unknown := sorted(fields.keys() - About.__dataclass_fields__.keys()):
        raise UserError(f"{path}: unknown field {unknown[0]!r}; the fields are {', '.join(About.__dataclass_fields__)}")
    blank = {"system": "", "description": "", "licence": ""}
    try:
        return TypeAdapter(About).validate_python(blank | fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_submissions(root: Path) -> Iterator[Submitted]:
    """Yield every run of a leaderboard's submissions, in the order of their folders' names.

    Raises:
        UserError: If a submission is damaged, says too little, or holds a task that does not belong in its folder.
    """
    for kind, tasks in FOLDERS.items():
        for folder in sorted(path.parent for path in (root / kind).glob(f"*/{ABOUT}")):
            about = read_about(folder / ABOUT)
            raise_all(list(about.problems()), str(folder / ABOUT))
            for path in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
                if path.name not in tasks:
                    raise UserError(f"{path} is not one of {', '.join(tasks)}, the tasks of {root / kind}; take it out")
                yield _read(about, path)


def _read(about: About, folder: Path) -> Submitted:
    try:
        manifest = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
        content = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        panels = {name: _panel(fields, manifest.depth) for name, fields in content["judgments"].items()}
    except OSError as error:
        raise UserError(f"submission {folder} lacks {error.filename} ({error.strerror}); add it again") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"submission {folder} is damaged ({error}); add it again") from error
    if content.get("content") != manifest.content:
        raise UserError(f"submission {folder}: {SCORES} belongs to another run than {MANIFEST}; add it again")
    if manifest.task != folder.name:
        raise UserError(f"submission {folder} holds a run for {manifest.task}; add it again")
    return Submitted(about, folder, manifest, panels)


def scores_text(panels: Mapping[str, Panel], content: str) -> str:
    """Return what `scores.json` holds: the values of each query at full precision.

    Args:
        panels: `{judgments: panel}`.
        content: Hash of the run that they belong to.
    """
    judgments = {
        name: {
            "queries": panel.queries,
            "values": {measure: values.tolist() for measure, values in panel.values.items()},
            "unanswered": panel.unanswered,
            "unjudgeable": panel.unjudgeable,
            "unknown": panel.unknown,
            "judged_at_10": panel.judged_at_10,
            "unjudged_at_10": panel.unjudged_at_10,
        }
        for name, panel in panels.items()
    }
    return json.dumps({"content": content, "judgments": judgments}, ensure_ascii=False, separators=(",", ":")) + "\n"


def _panel(fields: Mapping[str, Any], depth: int) -> Panel:
    queries = tuple(fields["queries"])
    values = {measure: np.array(row, np.float64) for measure, row in fields["values"].items()}
    for measure, row in values.items():
        if row.shape != (len(queries),) or not np.isfinite(row).all():
            raise ValueError(f"{measure} does not have one number for each of {len(queries)} queries")
        row.setflags(write=False)
    return Panel(
        queries=queries,
        values=values,
        depth=depth,
        unanswered=tuple(fields["unanswered"]),
        unjudgeable=tuple(fields["unjudgeable"]),
        unknown=fields["unknown"],
        judged_at_10=fields["judged_at_10"],
        unjudged_at_10=fields["unjudged_at_10"],
    )
