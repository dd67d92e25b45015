"""`obliq demo`: what the documentation and the tests start on the loopback interface."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from obliq_eval import show
from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from obliq_eval.demo.llm_server import LlmServer
    from obliq_eval.demo.personalities import Judge, Personality

app = typer.Typer(
    help="Servers on the loopback interface, to try commands without a large model.",
    no_args_is_help=True,
    add_completion=False,
)
JUDGES = ("perfect", "topical", "noisy", "malformed", "slow", "rate-limited", "dropping", "cutting", "writer")
LLM = """A language model that follows a script: the chat-completions protocol on 127.0.0.1.

perfect knows the gold documents of the tasks; topical prefers documents that share words with the query; noisy is
perfect but for a third of the places. The others are perfect judges with bad manners: malformed answers, slow ones,
refusals for too many requests, dropped connections, answers cut at the token limit. writer describes documents and
writes queries for them, by a rule, for `obliq synth`.

A command after -- is run with $OPENAI_BASE_URL and $OBLIQ_LLM set to it: obliq demo llm -- obliq run -t TASK -m A+B
"""


@app.callback()
def demo() -> None:
    """Servers on the loopback interface, to try commands without a large model."""


@app.command("llm", help=LLM)
def llm(
    *,
    judge: Annotated[str, typer.Option(help=f"One of {', '.join(JUDGES)}.")] = "perfect",
    tasks: Annotated[
        list[str] | None,
        typer.Option("-t", "--task", "--data", help="Tasks or folders whose gold it knows; by default the mini sets."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 for any free one.")] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Requests that are worked on at once.")] = 64,
    delay: Annotated[float, typer.Option(min=0, help="Seconds that each request takes.")] = 0.0,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]", help="Run this against the server, and stop with it.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve a scripted language model until Ctrl-C, or for as long as a command runs."""
    from obliq_eval.demo.llm_server import MODEL, LlmServer
    from obliq_eval.demo.loopback import serve

    server = LlmServer(choose(judge, tasks), port, slots=slots, delay=delay)

    def ready(url: str) -> None:
        show.say(f"the {judge} judge answers at {url} until Ctrl-C; in another shell:")
        show.say(f"export OPENAI_BASE_URL={url}")
        show.say(f"export OBLIQ_LLM={MODEL}")

    try:
        if command:
            raise typer.Exit(_run(command, server))
        serve(server, ready)
    except OSError as error:
        raise UserError(f"cannot serve on port {port}: {error.strerror or error}; give another --port") from error


def _run(command: Sequence[str], server: LlmServer) -> int:
    """Run a command with the server in its environment, and return its exit status."""
    from obliq_eval.demo.llm_server import MODEL

    program = shutil.which(command[0])
    if program is None:
        raise UserError(f"there is no command {command[0]!r} to run against the server")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # which takes the command along
    with server:
        known = {"OPENAI_BASE_URL": server.url, "OBLIQ_LLM": MODEL}
        done = subprocess.run([program, *command[1:]], env=os.environ | known, check=False)  # noqa: S603 -- the user's
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def choose(judge: str, tasks: Sequence[str] | None) -> Personality:
    """Return the personality of a name.

    Raises:
        UserError: If there is none, or a task cannot be had.
    """
    from obliq_eval.demo import personalities

    if judge not in JUDGES:
        raise UserError(f"--judge {judge!r} is not one of {', '.join(JUDGES)}{near(judge, JUDGES)}")
    if judge == "topical":
        return personalities.topical()
    if judge == "malformed":
        return personalities.malformed()
    if judge == "writer":
        return personalities.writer()
    perfect = personalities.perfect(gold_texts(tasks))
    made: Mapping[str, Callable[[Judge], Personality]] = {
        "perfect": lambda base: base,
        "noisy": lambda base: personalities.noisy(base, 1 / 3),
        "slow": lambda base: personalities.slow(base, 1.0),
        "rate-limited": personalities.rate_limited,
        "dropping": personalities.dropping,
        "cutting": personalities.cutting,
    }
    return made[judge](perfect)


def gold_texts(tasks: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return `{query text: texts of its gold documents}` of tasks or folders, by default of the bundled mini sets."""
    from obliq_eval.data.sources import MINI, load

    found: dict[str, list[str]] = {}
    for task in tasks or MINI:
        data = load(task)
        wanted = {d for _, d, grade in data.gold.pairs() if grade > 0}
        documents = data.corpus.documents
        rows = [row for row, document in enumerate(documents["id"][:]) if document in wanted]
        chosen = documents.select(rows)
        texts = dict(zip(chosen["id"][:], chosen["text"][:], strict=True))
        for query, text in data.queries.items():
            judged = data.gold.grades.get(query, {})
            found.setdefault(text, []).extend(texts[d] for d, grade in judged.items() if grade > 0 and d in texts)
    return found
