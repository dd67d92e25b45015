"""The example package is installed into a folder of its own and found there through its entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-retriever"

CODE = """
import json, datasets
from obliq_eval.catalogue import resolve, to_meta
model = to_meta(resolve("trigram")).load_model()
model.index(datasets.Dataset.from_dict({"id": ["a", "b", "c"], "text": ["harbours", "harbour", "xyz"]}))
queries = datasets.Dataset.from_dict({"id": ["q"], "text": ["the harbour"], "excluded_ids": [["b"]]})
print(json.dumps({"name": model.name, "found": list(model.search(queries, top_k=5)["q"])}))
"""


def test_the_example_package_is_found_and_runs(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source")  # building leaves files beside the source
    target = tmp_path / "site"
    wheel = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*wheel, "--target", target, source], check=True, capture_output=True)
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"name": "example/trigram", "found": ["a"]}
