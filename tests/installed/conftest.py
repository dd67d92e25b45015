"""Virtual environments into which the wheel is installed, for tests that run unmodified programs in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from obliq_eval.registry import TESTED

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "obliq_eval", "obliq_models", "obliq_train")
FOREIGN = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "MTEB_", "OBLIQ_", "PYTHON")  # settings of whoever runs the tests


class Environment:
    """A virtual environment that finds the running one's packages after its own, except obliq.

    They are linked into a folder that is named by a plain path line. Whatever obliq is installed where the tests run,
    and its start-up file, stay out: what happens here comes from what was installed here.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        places = {"base": str(folder), "platbase": str(folder)}
        self.bin = Path(sysconfig.get_path("scripts", "venv", places))
        self.site = Path(sysconfig.get_path("purelib", "venv", places))
        self.outer = folder / "outer"
        self.outer.mkdir()
        for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
            for path in Path(site).iterdir():
                if "obliq" not in path.name and path.suffix != ".pth":
                    (self.outer / path.name).symlink_to(path)
        (self.site / "outer.pth").write_text(f"{self.outer}\n", "utf-8")

    def pip(self, *words: str | Path) -> None:
        """Run pip on this environment."""
        command = [sys.executable, "-m", "pip", "--python", self.bin / "python", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, *what: str | Path) -> None:
        """Install without dependencies and without the network, whatever the running environment holds already."""
        self.pip("install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", *what)

    def run(self, home: Path, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python in a folder that it may write to, and return what came of it."""
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        own = {
            "HF_HOME": str(home / "hf"),
            "MTEB_CACHE": str(home / "mteb"),
            "OBLIQ_HOME": str(home / "obliq"),
            "NO_PROXY": "127.0.0.1",
        }
        return subprocess.run(
            [self.bin / "python", *words],
            env={**kept, **own, **variables}, cwd=home, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def ask(self, home: Path, *words: str | Path, **variables: str) -> str:
        """Run Python as `run` does, insist on success, and return its standard output."""
        done = self.run(home, *words, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of everything that the package is built from."""
    copy = tmp_path_factory.mktemp("checkout")
    for source in (ROOT / name for name in BUILT_FROM):
        if source.is_dir():
            shutil.copytree(source, copy / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, copy)
    return copy


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built with the setuptools that is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("-q", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, checkout], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Environment]:
    """Return a function that makes an environment in which nothing is installed yet."""
    return lambda: Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def bare(new_environment: Callable[[], Environment]) -> Environment:
    """Return an environment without obliq's start-up file."""
    return new_environment()


@pytest.fixture(scope="session")
def installed(new_environment: Callable[[], Environment], wheel: Path) -> Environment:
    """Return an environment into which the wheel is installed."""
    environment = new_environment()
    environment.install(wheel)
    return environment


@pytest.fixture(scope="session")
def installed_with_oldest_mteb(new_environment: Callable[[], Environment], wheel: Path) -> Environment:
    """Return an environment with the wheel and the oldest mteb that is supported."""
    environment = new_environment()
    environment.pip("install", "-q", "--no-deps", "--ignore-installed", f"mteb=={TESTED[0]}")
    environment.install(wheel)
    return environment
