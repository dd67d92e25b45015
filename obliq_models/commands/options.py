"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

MODEL = "Alias, full name, NAME@PATH or FILE.toml (`obliq models` lists names)."
Device = Annotated[str | None, typer.Option("--device", help="cpu, cuda, or the number of a GPU.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Engine = Annotated[
    str, typer.Option("--engine", help="Where to encode: local, pool (several processes) or ray (a cluster).")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="How many processes for --engine pool or ray.")]


def size(count: float) -> str:
    """Return a number of bytes for people, in powers of 1,000."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1_000
    return f"{count:,.1f} TB"
