"""What `obliq doctor` looks at: one function for each part of the environment, each of which returns lines."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import stat
import sys
import sysconfig
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen

from obliq_eval import __version__, show
from obliq_eval.commands.extras import extras, fits, installed, requirements
from obliq_eval.data.sources import MINI, MINI_FOLDER
from obliq_eval.home import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Level = Literal["ok", "info", "warning", "error"]
HUB = "https://huggingface.co"
PATIENCE = 3.0  # seconds to wait for the hub
SECRETS = ("HF_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY")
HOOK_FILE = "obliq_mteb_hook.pth"  # as `obliq_eval._packaging` names it, which needs setuptools
BESIDE = ("peft", "vllm", "numba")  # packages that matter where they are installed


@dataclass(frozen=True)
class Line:
    """One line of the report.

    Args:
        part: The part of the environment.
        what: What was looked at.
        found: What is there.
        level: An error keeps the bundled tasks from running, a warning something else.
        fails: What would fail and why, and what to do; empty if nothing.
    """

    part: str
    what: str
    found: str
    level: Level = "ok"
    fails: str = ""


def report() -> list[Line]:
    """Look at everything; imports torch and mteb, asks the hub for one page, changes nothing."""
    parts = (versions, hook, bundled, optional, devices, caches, hub, secrets)
    return [line for part in parts for line in _looked_at(part)]


def _looked_at(part: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """Yield the lines of a part; what keeps it from being looked at is a line too, since others may still be."""
    try:
        yield from part()
    except Exception as error:  # a broken environment is what this is for
        yield Line(part.__name__, "all", "cannot be looked at", "warning", show.why(error))


def versions() -> Iterator[Line]:
    """Compare what is installed with the versions that the package asks for."""
    yield Line("versions", "python", platform.python_version())
    yield Line("versions", "obliq", __version__)
    needed = requirements()
    if not needed:
        yield Line(
            "versions", "packages", "obliq is not installed as a package", "warning",
            "`mteb run` does not know obliq's tasks and models: pip install .",
        )  # fmt: skip
    for name, wanted, found in needed:
        if fits(found, wanted):
            yield Line("versions", name, f"{found} (wanted: {wanted or 'any'})")
        else:
            yield Line(
                "versions", name, f"{found or 'missing'} (wanted: {wanted or 'any'})", "error",
                f"{name} {found or ''} is outside the range that obliq was tested with: pip install '{name}{wanted}'",
            )  # fmt: skip
    for name in BESIDE:
        yield Line("versions", name, installed(name) or "not installed", "info")


def hook() -> Iterator[Line]:
    """Look for the start-up file that adds obliq to `mteb`, and whether it works in this process."""
    folders = [sysconfig.get_path("purelib"), *sys.path]
    files = [Path(folder) / HOOK_FILE for folder in folders if folder]
    file = next((path for path in files if path.is_file()), None)
    off = os.environ.get("OBLIQ_MTEB_HOOK") == "0"
    active = any(getattr(finder, "__module__", "") == "obliq_eval.hook" for finder in sys.meta_path)
    yield Line("hook", "start-up file", str(file or "missing"), "ok" if file else "warning")
    yield Line("hook", "OBLIQ_MTEB_HOOK", "0 (switched off)" if off else "not 0")
    fails = ""
    if not active:
        reason = "OBLIQ_MTEB_HOOK is 0: unset it" if off else "the start-up file did not run: pip install obliq again"
        fails = f"`mteb run` does not know obliq's tasks and models ({reason}); `obliq run` works"
    yield Line("hook", "active", "yes" if active else "no", "warning" if fails else "ok", fails)


def bundled() -> Iterator[Line]:
    """Try what the bundled tasks need: mteb with obliq registered, a model, the files, a place for the run."""
    from obliq_eval.running import import_mteb

    tasks = [name for name in MINI if (MINI_FOLDER / MINI[name]).is_dir()]
    if not tasks:
        yield Line("bundled", "tasks", "missing", "error", "the bundled data is not there: install obliq again")
        return
    try:
        import_mteb().get_tasks(tasks=tasks)
        for module in ("bm25s", "ranx", "obliq_models.retrievers.stylometry"):
            importlib.import_module(module)
    except Exception as error:  # whatever it is, it is what `obliq run` would meet
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        yield Line("bundled", "tasks", "cannot run", "error", f"nothing can be evaluated: {text}")
    else:
        yield Line("bundled", "tasks", ", ".join(tasks))


def optional() -> Iterator[Line]:
    """Say which extras are complete."""
    for extra, missing in extras().items():
        found = f"missing: {', '.join(missing)}" if missing else "installed"
        fails = f"what needs [{extra}] does not run: pip install 'obliq[{extra}]'" if missing else ""
        yield Line("extras", extra, found, "info" if missing else "ok", fails)


def devices() -> Iterator[Line]:
    """Say what there is to compute with."""
    yield Line("devices", "processor", f"{platform.machine()}, {os.cpu_count()} cores")
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        yield Line("devices", "memory", size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    try:
        import torch
    except ImportError as error:
        yield Line("devices", "torch", f"cannot be imported: {error}", "error", f"no model runs: {error}")
        return
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    for number, gpu in enumerate(gpus):
        yield Line("devices", f"GPU {number}", f"{gpu.name}, {size(gpu.total_memory)}")
    if not gpus:
        yield Line("devices", "GPU", "none", "info", "models of billions of weights take very long without a GPU")


def caches() -> Iterator[Line]:
    """Say where things are kept, how large they are, and whether they can be written."""
    from huggingface_hub.constants import HF_HUB_CACHE

    yield _folder("runs and corpora (OBLIQ_HOME)", home, "runs cannot be stored, nor corpora converted", "error")
    yield _folder("hub (HF_HOME)", lambda: Path(HF_HUB_CACHE), "official data and models cannot be fetched", "warning")
    yield _folder("mteb (MTEB_CACHE)", _mteb_cache, "mteb cannot keep its own downloads", "info")
    yield _folder("results", Path("results").resolve, "mteb cannot write results here: --output-folder", "warning")


def hub() -> Iterator[Line]:
    """Ask the hub for one page, unless it is switched off."""
    endpoint = address(os.environ.get("HF_ENDPOINT") or HUB)
    what = "official data and models that are not in the cache cannot be fetched"
    if endpoint is None:
        yield Line(
            "hub",
            "HF_ENDPOINT",
            "no address",
            "warning",
            f"{what}: HF_ENDPOINT must be an address that begins with http(s)://",
        )
        return
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        yield Line("hub", endpoint, "not asked: HF_HUB_OFFLINE is set", "info", f"{what}: unset HF_HUB_OFFLINE")
        return
    try:
        with urlopen(Request(endpoint, method="HEAD"), timeout=PATIENCE):  # noqa: S310 -- the scheme was checked
            yield Line("hub", endpoint, "reachable")
    except HTTPError:  # it answered
        yield Line("hub", endpoint, "reachable")
    except (OSError, ValueError, HTTPException) as error:
        yield Line("hub", endpoint, f"not reachable: {getattr(error, 'reason', error)}", "warning", what)


def hub_answers() -> bool:
    """Tell whether the hub answers within `PATIENCE` seconds, however long a name server would take."""
    found: list[Line] = []
    asking = Thread(target=lambda: found.extend(hub()), daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return any(line.level == "ok" for line in found)


def address(url: str) -> str | None:
    """Return a web address without name, password, query and fragment, which may be secrets; None if it is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port that cannot be
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")) if usable else None


def secrets() -> Iterator[Line]:
    """Say whether tokens are set, never what they are."""
    for name in SECRETS:
        yield Line("secrets", name, "set" if os.environ.get(name) else "not set", "info")


def size(count: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def _mteb_cache() -> Path:
    return Path(os.environ.get("MTEB_CACHE") or Path.home() / ".cache" / "mteb")


def _folder(what: str, find: Callable[[], Path], fails: str, level: Level) -> Line:
    try:
        path = find()
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        free = shutil.disk_usage(there).free
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        return Line("caches", what, "cannot be looked at", level, f"{fails} ({show.why(error)})")
    used = sum(map(_bytes, path.rglob("*"))) if path.is_dir() else 0
    found = f"{path}: {size(used)} used, {size(free)} free"
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Line("caches", what, found)
    return Line("caches", what, f"{found}, cannot be written", level, f"{fails} ({there} cannot be written)")


def _bytes(file: Path) -> int:
    """Return the size of a file, 0 for anything else and for what is gone or hidden."""
    try:
        about = file.lstat()
    except OSError:
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0
