"""The command `obliq`: subcommands by reference, so that start-up imports nothing heavy."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from obliq_eval import __version__, show
from obliq_eval.errors import UserError

COMMANDS = {
    "run": ("obliq_eval.commands.run:app", "Evaluate a model on tasks, as `mteb run` does, or on your own folder."),
    "eval": ("obliq_eval.commands.evaluate:app", "Score a run: the panel under gold and pooled judgments."),
    "compare": ("obliq_eval.commands.compare:app", "Compare runs with a baseline: paired tests, queries, a page."),
    "index": ("obliq_models.commands.index:app", "Index documents of your own with a model, for `obliq search`."),
    "search": ("obliq_models.commands.search:app", "Ask an index: one query, a file of them, or line by line."),
    "encode": ("obliq_models.commands.encode:app", "Encode texts beforehand; say what it costs; list what is kept."),
    "rerank": ("obliq_models.commands.rerank:app", "Rerank a stored run; say what it costs; sweep cost and quality."),
    "policy": ("obliq_models.commands.policy:app", "Show which reranker each task gets, or choose on dev queries."),
    "prompts": ("obliq_models.commands.prompts:app", "List and show what language models are told."),
    "synth": ("obliq_train.commands.synth:app", "Write synthetic queries for documents through a lens."),
    "graph": ("obliq_train.commands.graph:app", "A frozen model's nearest-neighbour graph, doses and controls."),
    "purity": ("obliq_eval.commands.purity:app", "Test whether a graph follows an attribute, before any training."),
    "negatives": ("obliq_train.commands.negatives:app", "Training rows with negatives mined by BM25."),
    "quality": ("obliq_eval.commands.quality:app", "Measure how oblique queries are against their documents."),
    "mix": ("obliq_train.commands.mix:app", "Mix training rows by a recipe: doses, weights, duplicates, manifest."),
    "train": ("obliq_train.commands.train:app", "Train an adapter by a recipe; plan it; run ablations."),
    "merge": ("obliq_train.commands.merge:app", "Fold an adapter into its base, and say what that changed."),
    "tasks": ("obliq_eval.commands.tasks:app", "List the tasks: what they hold, what decides relevance, licences."),
    "models": ("obliq_eval.commands.models:app", "List the models: names, licences, what they need, risks."),
    "data": ("obliq_eval.commands.data:app", "Fetch, check and export the data of a task or folder."),
    "analyze": ("obliq_eval.commands.analyze:app", "The paper's analyses over runs: tables, JSON, pictures."),
    "runs": ("obliq_eval.commands.runs:app", "List, compare, export and import stored runs."),
    "verify-paper": ("obliq_eval.commands.verify_paper:app", "Compare stored runs with the paper's figures."),
    "import-authors": ("obliq_eval.commands.import_authors:app", "Import the paper's own runs and score them here."),
    "leaderboard": ("obliq_eval.commands.leaderboard:app", "Build the leaderboards, add submissions, check both."),
    "demo": ("obliq_eval.commands.demo:app", "Scripted servers on the loopback interface, to try commands with."),
    "doctor": ("obliq_eval.commands.doctor:app", "Say what is installed and reachable, and what would fail."),
}
PANELS = {
    "Evaluate": ("run", "eval", "compare", "analyze", "runs"),
    "Search with a model": ("index", "search", "encode"),
    "Language models": ("rerank", "policy", "prompts", "demo"),
    "Training data": ("synth", "graph", "purity", "negatives", "quality", "mix"),
    "Training": ("train", "merge"),
    "What there is": ("tasks", "models", "data", "doctor"),
    "Publish": ("leaderboard", "verify-paper", "import-authors"),
}
"""Where `obliq --help` lists each command."""
"""Each subcommand with the Typer application behind it and one line of help."""

NO_BARS = ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS")
"""Settings that the libraries below read when they are imported: no progress bars, for output that is piped."""

TERMINATED = 143  # what a shell reports for a program that was told to end
INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended
BROKEN_PIPE = 141  # what a shell reports for a program whose reader has gone


class _Lazy(TyperCommand):
    """Stands for a command in the list of commands, and imports it when it is called."""

    def __init__(self, name: str, reference: str, summary: str, panel: str) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel)
        self._reference = reference

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments with the real command."""
        module, _, attribute = self._reference.partition(":")
        command = get_command(getattr(importlib.import_module(module), attribute))
        return command.make_context(info_name, args, parent=parent, **extra)


class _Group(TyperGroup):
    """The commands by reference; what a user can put right is told in one sentence."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        panels = {name: panel for panel, names in PANELS.items() for name in names}
        for name, (reference, summary) in COMMANDS.items():
            self.add_command(_Lazy(name, reference, summary, panels[name]), name)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; status 2 for a `UserError`, 130 after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            show.debug()
            show.fail(str(error))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            show.fail("interrupted; what was finished is kept")
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            _drop_output()
            raise typer.Exit(BROKEN_PIPE) from error


app = typer.Typer(
    cls=_Group, no_args_is_help=True, add_completion=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def _print_version(wanted: bool) -> None:
    if wanted:
        show.say(f"obliq {__version__}")
        raise typer.Exit


@app.callback(epilog="Set OBLIQ_DEBUG=1 to see the traceback of an error.")
def _obliq(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Evaluate, build and compare retrievers for oblique queries: relevance that no document states."""


def main() -> None:
    """Run the command line and end the process: status 0, 1 for a negative verdict, 2 if it cannot be done."""
    for name in ("stdout", "stderr"):  # whoever starts a program may close them
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 -- until the end
    warnings.showwarning = _show_warning
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that nothing half-written is left
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character that the output cannot hold is no reason to stop
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.stderr.isatty():
        os.environ.update(dict.fromkeys(NO_BARS, "1"))
    told = False
    try:
        get_command(app).main(prog_name="obliq")
    except Exception as error:
        show.debug()
        show.fail(show.why(error))
        told = True
        sys.exit(2)
    finally:
        _flush(told=told)


def _flush(*, told: bool) -> None:
    """Write out what is printed; status 2 if it cannot be written, which is told unless an error was."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        _drop_output()
        if not told:
            show.fail(f"cannot write the output: {show.why(error)}")
        sys.exit(2)


def _drop_output() -> None:
    """Send the rest of the output nowhere: its reader has gone, and Python would complain when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    show.warn(str(message))
