"""What training writes: never over what it reads, never over a device, never in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from obliq_eval.errors import UserError
from obliq_train import provenance

if TYPE_CHECKING:
    from pathlib import Path


def test_no_output_takes_the_place_of_an_input(tmp_path: Path) -> None:
    read, link, manifest = tmp_path / "in.jsonl", tmp_path / "link.jsonl", tmp_path / "out.jsonl.manifest.json"
    for file in (read, manifest):
        file.write_text("{}\n", "utf-8")
    link.symlink_to(read)
    provenance.check_output(tmp_path / "new" / "out.jsonl", read, "OBLIQ-Math", None, tmp_path)
    for output, given in ((read, read), (link, f"{read}#name"), (tmp_path / "out.jsonl", manifest)):
        with pytest.raises(UserError, match="is one of the inputs"):
            provenance.check_output(output, given)
    with pytest.raises(UserError, match="is a folder"):
        provenance.check_output(tmp_path)


def test_no_output_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is no ordinary file"):
        provenance.check_output(tmp_path / "pipe")


def test_half_of_a_surrogate_pair_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 2 would hold half of a surrogate pair, \\ud800"):
        provenance.write(tmp_path / "o.jsonl", ["a\n", "b\ud800\n"], command="x", settings={}, inputs={})
    assert not list(tmp_path.iterdir())
