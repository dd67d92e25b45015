"""`obliq doctor`: what it finds, what it says would fail, and what it never says."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from obliq_eval import health
from obliq_eval.cli import app
from obliq_eval.commands import extras
from obliq_eval.demo.hub import LoopbackHub

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)


def test_here_the_bundled_tasks_can_run_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very-secret")
    done = RUNNER.invoke(app, ["doctor", "--json"])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["bundled_tasks_run"]) == (0, True)
    found = {(line["part"], line["what"]): line for line in report["lines"]}
    assert found["secrets", "HF_TOKEN"]["found"] == "set"
    assert "very-secret" not in done.output
    assert found["versions", "mteb"]["level"] == "ok"
    assert found["hub", "http://127.0.0.1:9"]["level"] == "warning"
    assert "cores" in found["devices", "processor"]["found"]


def test_a_home_that_cannot_be_written_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OBLIQ_HOME", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(health, "report", lambda: [*health.caches()])
    done = RUNNER.invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "error: runs cannot be stored" in done.stdout


def test_nothing_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "report", lambda: [health.Line("part", "what", "found")])
    done = RUNNER.invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert "Nothing is known that would fail." in done.stdout


def test_a_version_out_of_range_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = (("rich", ">=999", "1.0"), ("absent", "", None), ("fine", ">=1,<3", "2.1"))
    monkeypatch.setattr(health, "requirements", lambda: needed)
    levels = {line.what: line.level for line in health.versions()}
    assert (levels["rich"], levels["absent"], levels["fine"]) == ("error", "error", "ok")
    assert any("pip install 'rich>=999'" in line.fails for line in health.versions())


def test_missing_extras_are_named_with_their_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "extras", lambda: {"there": (), "gone": ("a", "b")})
    there, gone = health.optional()
    assert (there.found, there.fails) == ("installed", "")
    assert gone.found == "missing: a, b"
    assert "pip install 'obliq[gone]'" in gone.fails


def test_the_hook_that_is_switched_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_MTEB_HOOK", "0")
    monkeypatch.setattr("sys.meta_path", [])
    lines = {line.what: line for line in health.hook()}
    assert lines["active"].found == "no"
    assert "unset it" in lines["active"].fails


def test_the_hub_is_asked_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackHub([]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        (line,) = health.hub()
        assert (line.level, line.found, hub.requests) == ("ok", "reachable", [("HEAD", "/")])
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        (line,) = health.hub()
        assert "HF_HUB_OFFLINE" in line.found
        assert len(hub.requests) == 1


def test_a_hub_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(health, "PATIENCE", 0.1)
        (line,) = health.hub()
    assert line.level == "warning"
    assert "timed out" in line.found
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc/passwd")
    (line,) = health.hub()
    assert "http(s)" in line.fails


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://huggingface.co", "https://huggingface.co"),
        ("http://user:s3cret@127.0.0.1:9/hub", "http://127.0.0.1:9/hub"),
        ("http://s3cret@127.0.0.1:9", "http://127.0.0.1:9"),
        ("http://a@b:s3cret@127.0.0.1:9?token=s3cret#s3cret", "http://127.0.0.1:9"),
        ("http://user:s3cret@[::1]:9", "http://[::1]:9"),
        ("user:s3cret@127.0.0.1", None),
        ("http://127.0.0.1:99999", None),
        ("http://[s3cret", None),
        ("http://", None),
        ("s3cret", None),
    ],
)
def test_an_address_is_told_without_what_may_be_secret(
    url: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert health.address(url) == shown
    if "s3cret" in url or shown is None:
        monkeypatch.setenv("HF_ENDPOINT", url)
        (line,) = health.hub()
        assert "s3cret" not in str(line)
        assert line.level == "warning"
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert "s3cret" not in str(list(health.hub()))


def test_a_part_that_cannot_be_looked_at_leaves_the_others_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise PermissionError(13, "Permission denied", "a/b")

    for part in ("versions", "hook", "bundled", "optional", "caches", "hub", "secrets"):
        monkeypatch.setattr(health, part, lambda: iter(()))
    broken.__name__ = "devices"
    monkeypatch.setattr(health, "devices", broken)
    (line,) = health.report()
    assert (line.part, line.found, line.level) == ("devices", "cannot be looked at", "warning")
    assert line.fails.startswith("a/b: Permission denied")


def test_no_home_folder_is_a_line_for_each_cache_that_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Any:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("OBLIQ_HOME")
    monkeypatch.delenv("MTEB_CACHE", raising=False)
    monkeypatch.setattr("pathlib.Path.home", homeless)
    found = {line.what: line for line in health.caches()}
    assert len(found) == 4
    assert found["runs and corpora (OBLIQ_HOME)"].level == "error"
    assert "set HOME" in found["mteb (MTEB_CACHE)"].fails
    assert "free" in found["results"].found


def test_bundled_data_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MINI_FOLDER", tmp_path)
    (line,) = health.bundled()
    assert (line.level, line.found) == ("error", "missing")


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (999, "999 B"), (25_300, "25 KB"), (2_100_000_000, "2.1 GB")])
def test_sizes_in_words(count: int, words: str) -> None:
    assert health.size(count) == words


def test_the_size_of_a_cache_counts_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "blob").write_bytes(b"x" * 2_000)
    (home / "link").symlink_to(home / "blob")
    line = next(line for line in health.caches() if "OBLIQ_HOME" in line.what)
    assert "2 KB used" in line.found


def test_extras_of_this_package_are_known() -> None:
    extras.extras.cache_clear()
    assert {"mini", "minilm", "test"} <= extras.extras().keys()
