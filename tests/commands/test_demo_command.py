"""`obliq demo llm`: a process that serves until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.commands.demo import JUDGES, choose, gold_texts
from obliq_eval.data.sources import load
from obliq_eval.delimited import answer_line, delimit
from obliq_eval.demo.personalities import Asked


def test_it_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-c", "from obliq_eval.cli import main; main()", "demo", "llm", "--judge", "topical"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        address = re.fullmatch(r"export OPENAI_BASE_URL=(http://127\.0\.0\.1:[0-9]+/v1)\n", lines[1])
        assert address is not None, lines
        assert lines[2] == "export OBLIQ_LLM=loopback-judge\n"
        with urllib.request.urlopen(f"{address[1]}/models", timeout=10) as answer:  # noqa: S310
            assert json.load(answer)["data"][0]["id"] == "loopback-judge"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


OBLIQ = [sys.executable, "-c", "from obliq_eval.cli import main; main()"]
ASK = """
import os, sys, urllib.request
print(os.environ["OBLIQ_LLM"], urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models").status)
sys.exit(7)
"""
WAIT = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_a_command_runs_against_it_and_its_status_is_returned() -> None:
    command = [*OBLIQ, "demo", "llm", "--judge", "topical", "--", sys.executable, "-c", ASK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "loopback-judge 200\n"), done.stderr


def test_it_takes_the_command_along_when_it_is_ended() -> None:
    command = [*OBLIQ, "demo", "llm", "--judge", "topical", "--", sys.executable, "-c", WAIT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_command_that_is_not_there_is_told() -> None:
    done = CliRunner().invoke(app, ["demo", "llm", "--judge", "topical", "--", "no-such-command"])
    assert done.exit_code == 2
    assert "there is no command 'no-such-command'" in done.stderr


def test_the_perfect_judge_knows_the_gold_of_the_mini_sets() -> None:
    data = load("OBLIQ-Mini-Math")
    query = next(iter(data.queries))
    known = gold_texts(["OBLIQ-Mini-Math"])[data.queries[query]]
    material = delimit(data.queries[query], ["something else altogether, and long enough", known[0]])
    prompt = f"{material}\n{answer_line('ranking', 2)}"
    judge = choose("perfect", ["OBLIQ-Mini-Math"])
    assert json.loads(judge(Asked(0, (("user", prompt),))).text) == {"ranking": [2, 1]}


@pytest.mark.parametrize("name", JUDGES)
def test_every_judge_can_be_chosen(name: str) -> None:
    assert callable(choose(name, ["OBLIQ-Mini-Math"]))


def test_an_unknown_judge_is_told() -> None:
    done = CliRunner().invoke(app, ["demo", "llm", "--judge", "perfekt"])
    assert done.exit_code == 2
    assert 'did you mean "perfect"' in done.stderr
