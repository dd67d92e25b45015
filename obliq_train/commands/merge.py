"""`obliq merge`: fold an adapter into its base, and say what that changed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from obliq_eval import show
from obliq_eval.devices import device_of

if TYPE_CHECKING:
    from obliq_train.merge import Merged

app = typer.Typer(add_completion=False)
HELP = """Fold a LoRA adapter into its base: a whole model, which plain sentence-transformers loads without PEFT.

Each layer is computed in float32 and rounded once. What was written is loaded again and compared with the adapter on
its base: vectors and rankings on the probe. In bfloat16 folding loses a little; the figures say how much, and stand in
the model card as well.
"""
WHAT = "An adapter's folder; or a model, NAME@FOLDER or FILE.toml, as after -m."
PROBE = "Task or folder with queries, or documents alone (FOLDER, FILE.jsonl); by default OBLIQ-Mini-Math."


@app.command(help=HELP)
def merge(
    adapter: Annotated[str, typer.Argument(metavar="ADAPTER", help=WHAT)],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="The merged model, a new folder.")],
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="float32, bfloat16 or float16; by default the base's own.")
    ] = None,
    probe: Annotated[str | None, typer.Option("--probe", metavar="TASK|FOLDER|FILE", help=PROBE)] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="FOLDER", help="Where the base is, if not where the adapter says.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that the base brings; read it first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fold an adapter into its base."""
    from obliq_train import merge as merging
    from obliq_train.probe import DEFAULT

    merging.check_dtype(dtype)
    merging.check_output(output, Path(adapter))
    place, on = device_of(device) if device else None, DEFAULT if probe is None else probe
    done = merging.merge(adapter, output, dtype, on, base=base, device=place, trust_remote_code=trust_remote_code)
    if as_json:
        show.payload(asdict(done))
    else:
        _tell(done)


def _tell(done: Merged) -> None:
    change = done.change
    show.say(f"{done.folder}: {done.adapter} folded into {done.base}, {done.layers} linear layers, {done.dtype}")
    show.say(f"compared with the adapter on its base in {done.own}, on {change.probe}:")
    show.say(f"  cosine of vectors  {change.least:.6f} at least, {change.mean:.6f} on average ({change.texts:,} texts)")
    show.say(f"  same first document  {change.first:,}/{change.queries:,} queries")
    show.say(f"  overlap@10  {change.overlap:.4f} on average")
    if change.cut:
        show.say(f"  {change.cut:,} texts are longer than the model reads, and were cut")
