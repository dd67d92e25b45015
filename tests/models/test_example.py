"""The example package is installed into a folder of its own and found there through its entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from obliq_eval import runs
from obliq_eval.data.sources import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-retriever"

pytestmark = pytest.mark.slow  # a package is built, and mteb runs on it

CODE = """
import json, datasets
from obliq_eval.catalogue import resolve, to_meta
model = to_meta(resolve("trigram")).load_model()
model.index(datasets.Dataset.from_dict({"id": ["a", "b", "c"], "text": ["harbours", "harbour", "xyz"]}))
queries = datasets.Dataset.from_dict({"id": ["q"], "text": ["the harbour"], "excluded_ids": [["b"]]})
print(json.dumps({"name": model.name, "found": list(model.search(queries, top_k=5)["q"])}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables under which Python finds the example package, installed into a folder."""
    tmp_path = tmp_path_factory.mktemp("example")
    source = shutil.copytree(EXAMPLE, tmp_path / "source")  # building leaves files beside the source
    target = tmp_path / "site"
    wheel = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*wheel, "--target", target, source], check=True, capture_output=True)
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def test_the_example_package_is_found_and_runs(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1]) == {"name": "example/trigram", "found": ["a"]}


def test_the_command_that_the_example_shows(environment: dict[str, str], tmp_path: Path) -> None:
    """The README's `mteb run`, word for word: no excluded document is found, and more gold ones than by chance."""
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    (command,) = [line.split() for line in readme.splitlines() if line.startswith("    mteb run ")]
    home = {"OBLIQ_HOME": os.environ["OBLIQ_HOME"], "MTEB_CACHE": str(tmp_path / "mteb"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**environment, **home}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    task = command[command.index("-t") + 1]
    (file,) = tmp_path.rglob(f"{task}.json")
    (scores,) = json.loads(file.read_text("utf-8"))["scores"]["test"]
    data, entry = load(task), runs.load(scores["obliq_run"])
    assert entry.manifest is not None
    assert entry.manifest.model.name == "example/trigram"
    rankings = entry.read().rankings
    assert set(rankings) == set(data.gold.queries)
    assert not any(set(rankings[q].documents) & data.exclusions.get(q, frozenset()) for q in rankings)
    assert scores["recall_at_10"] > 2 * 10 / len(data.corpus)
