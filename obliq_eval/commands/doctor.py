"""`obliq doctor`: what is installed and reachable, and what would fail."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from obliq_eval import show

app = typer.Typer(add_completion=False)


@app.command()
def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Say what is installed and reachable, and what would fail. Exit status 1 if the bundled tasks cannot run."""
    from obliq_eval.health import report

    lines = report()
    broken = any(line.level == "error" for line in lines)
    if as_json:
        show.payload({"bundled_tasks_run": not broken, "lines": [asdict(line) for line in lines]})
    else:
        show.table(("part", "what", "found", ""), [(x.part, x.what, x.found, _mark(x.level)) for x in lines])
        fails = [line for line in lines if line.fails]
        show.say("What would fail:" if fails else "Nothing is known that would fail.")
        for line in fails:
            show.say(f"  {_mark(line.level) or 'note'}: {line.fails}")
    if broken:
        raise typer.Exit(1)


def _mark(level: str) -> str:
    return "" if level in {"ok", "info"} else level
