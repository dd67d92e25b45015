"""The start-up hook: it comes with every kind of installation, costs nothing, and makes mteb know obliq."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import registry
from obliq_eval._packaging import HOOK_FILE, HOOK_LINE
from obliq_eval.catalogue import Loader, resolve, to_meta
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
OFFICIAL = ["OBLIQ-Twitter", "OBLIQ-WildChat", "OBLIQ-Math", "OBLIQ-Writing", "OBLIQ-Congress"]
MINI = ["OBLIQ-Mini-Writing", "OBLIQ-Mini-Math", "OBLIQ-Mini-Congress"]
FINDS_WRITING = "import mteb; print(mteb.get_task('OBLIQ-Writing').metadata.name)"

# What mteb knows once a submodule of it was imported first, then after registering again and after a reload.
PROBE = """
import importlib, json
import mteb.benchmarks
import mteb
from mteb.models.model_implementations import MODEL_REGISTRY
from obliq_eval.catalogue import catalogue
from obliq_eval.registry import register_all

def known():
    return {
        "mteb": mteb.__version__,
        "task": mteb.get_task("OBLIQ-Writing").metadata.name,
        "tasks": [task.metadata.name for task in mteb.get_tasks() if task.metadata.name.startswith("OBLIQ-")],
        "benchmarks": {
            b.name: [t.metadata.name for t in b.tasks] for b in mteb.get_benchmarks() if b.name.startswith("OBLIQ-")
        },
        "aliases": {alias: mteb.get_model_meta(alias).name for alias in catalogue()},
        "full names": [mteb.get_model_meta(entry.name).name for entry in catalogue().values()],
        "metas": [meta.name for meta in mteb.get_model_metas()],
        "values": [meta.name for meta in MODEL_REGISTRY.values()],
        "keys": list(MODEL_REGISTRY),
        "len": len(MODEL_REGISTRY),
        "loader": type(mteb.__spec__.loader).__name__,
    }

reports = [known()]
register_all()
reports.append(known())
importlib.reload(mteb)
reports.append(known())
print(json.dumps(reports))
"""

# Counts registrations in place of making them, so that any module can play mteb.
COUNTING = """
import sys, types
calls = []
sys.modules["obliq_eval.registry"] = types.SimpleNamespace(
    register_all=lambda: calls.append(sys.modules["mteb"].__dict__.get("done"))
)
"""


def write_mteb(folder: Path, **files: str) -> str:
    """Write a package called mteb and return its parent, for PYTHONPATH."""
    package = folder / "mteb"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", **files}.items():
        (package / f"{name}.py").write_text(text, "utf-8")
    return str(folder)


def left_of_obliq(environment: Any) -> list[str]:
    """Return what an environment's site-packages hold of obliq."""
    return sorted(path.name for path in environment.site.iterdir() if "obliq" in path.name)


# --- what is packed


def test_the_wheel_holds_the_packages_their_data_and_the_hook_and_nothing_else(wheel: Path) -> None:
    packages = [ROOT / name for name in ("obliq_eval", "obliq_models", "obliq_train")]
    files = {path for package in packages for path in package.rglob("*") if path.is_file()}
    wanted = {path.relative_to(ROOT).as_posix() for path in files if path.parent.name != "__pycache__"}
    assert {
        "obliq_models/py.typed",
        "obliq_eval/templates/comparison.html",
        "obliq_eval/leaderboard/paper.json",
    } < wanted
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        metadata = {name for name in packed if name.split("/")[0].endswith(".dist-info")}
        assert archive.read(HOOK_FILE).decode() == HOOK_LINE
        (record,) = (archive.read(name).decode() for name in metadata if name.endswith("/RECORD"))
        bundled = [info for info in archive.infolist() if info.filename.startswith("obliq_eval/data/mini/")]
    assert packed - metadata == {HOOK_FILE} | wanted
    assert 0 < sum(info.compress_size for info in bundled) <= 3_000_000
    assert any(line.startswith(f"{HOOK_FILE},sha256=") for line in record.splitlines())


# --- what it costs


def imported(environment: Any, home: Path, *options: str) -> set[str]:
    """Return what a start of Python imports, those modules included that are gone again when it is done."""
    traced = environment.run(home, "-X", "importtime", *options, "-c", "").stderr
    names = {line.rpartition("|")[2].strip() for line in traced.splitlines() if line.startswith("import time:")}
    listed = environment.ask(home, *options, "-c", "import sys; print(*sys.modules)")
    return names | set(listed.split())


def finders(environment: Any, home: Path, *options: str) -> int:
    """Return how many finders of the hook a start of Python leaves on `sys.meta_path`."""
    code = "import sys; print(sum(getattr(f, '__module__', '') == 'obliq_eval.hook' for f in sys.meta_path))"
    return int(environment.ask(home, *options, "-c", code))


def test_the_hook_imports_nothing(installed: Any, bare: Any, tmp_path: Path) -> None:
    assert finders(installed, tmp_path) > 0
    assert finders(bare, tmp_path) == 0
    assert imported(installed, tmp_path) == imported(bare, tmp_path)


def test_python_without_site_has_no_hook(installed: Any, tmp_path: Path) -> None:
    assert finders(installed, tmp_path, "-S") == 0


# --- when it acts


def test_it_registers_once_after_mteb_has_run_and_leaves_mteb_its_loader(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="done = False\nfrom mteb import sub\ndone = True\n", sub="", late="")
    code = (
        f"{COUNTING}\nimport mteb.late, mteb\nloader = mteb.__spec__.loader\n"
        "print(calls, type(loader).__name__, mteb.__loader__ is loader)"
    )
    assert installed.ask(tmp_path, "-c", code, PYTHONPATH=path) == "[True] SourceFileLoader True\n"


def test_a_reloaded_mteb_is_registered_with_again(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="done = True\n")
    code = f"{COUNTING}\nimport importlib, mteb\nimportlib.reload(mteb)\nprint(calls)"
    assert installed.ask(tmp_path, "-c", code, PYTHONPATH=path) == "[True, True]\n"


def test_two_hooks_register_once_and_leave_other_imports_alone(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="done = True\n")
    code = (
        f"{COUNTING}\nexec({HOOK_LINE!r})\nimport colorsys, mteb\n"
        "print(type(colorsys.__spec__.loader).__name__, type(mteb.__spec__.loader).__name__, calls)"
    )
    assert installed.ask(tmp_path, "-c", code, PYTHONPATH=path) == "SourceFileLoader SourceFileLoader [True]\n"


def test_looking_for_mteb_does_not_register(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="VALUE = 1\n")
    code = (
        f"{COUNTING}\nimport importlib.util as u\nspec = u.find_spec('mteb')\n"
        "print(calls, spec.loader.get_filename('mteb') == spec.origin, 'VALUE' in spec.loader.get_source('mteb'))"
    )
    assert installed.ask(tmp_path, "-c", code, PYTHONPATH=path) == "[] True True\n"


def test_without_mteb_the_import_fails_as_ever(installed: Any, tmp_path: Path) -> None:
    code = f"import sys, importlib.util as u; sys.path.remove({str(installed.outer)!r}); print(u.find_spec('mteb'))"
    done = installed.run(tmp_path, "-c", f"{code}; import mteb")
    assert (done.returncode, done.stdout) == (1, "None\n")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'mteb'"


def test_an_mteb_that_fails_says_so_itself_and_can_be_tried_again(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="import os\nif 'WELL' not in os.environ: 1 / 0\ndone = True\n")
    code = (
        f"{COUNTING}\nimport os\n"
        "try:\n    import mteb\nexcept ZeroDivisionError:\n    print(calls, 'mteb' in sys.modules)\n"
        "os.environ['WELL'] = '1'\nimport mteb\nprint(calls)"
    )
    assert installed.ask(tmp_path, "-c", code, PYTHONPATH=path) == "[] False\n[True]\n"


def test_a_finder_that_fails_or_has_an_old_form_is_dealt_with_as_python_does(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="done = True\n")
    code = (
        f"{COUNTING}\n"
        "class Fails:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'mteb': raise ImportError('no mteb today')\n"
        "class Old: pass\n"
        "sys.meta_path.insert(1, Fails)\n"
        "try:\n    import mteb\nexcept ImportError as error:\n    print(error)\n"
        "sys.meta_path[1] = Old\n"
        "import mteb\nprint(calls)"
    )
    assert installed.ask(tmp_path, "-W", "ignore", "-c", code, PYTHONPATH=path) == "no mteb today\n[True]\n"


def test_a_folder_called_mteb_is_no_mteb(installed: Any, tmp_path: Path) -> None:
    (tmp_path / "mteb").mkdir()
    code = f"import sys; sys.path.append('.'); sys.path.remove({str(installed.outer)!r}); import mteb"
    assert installed.ask(tmp_path, "-c", f"{code}; print(mteb.__path__)").startswith("_NamespacePath")


# --- the switch, and an mteb that it does not know


def test_an_unknown_mteb_fails_loudly_and_runs_with_the_hook_switched_off(installed: Any, tmp_path: Path) -> None:
    path = write_mteb(tmp_path / "fake", __init__="import mteb.get_tasks\n", get_tasks="A_NEW_NAME = {}\n")
    info = tmp_path / "fake" / "mteb-99.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mteb\nVersion: 99.1\n", "utf-8")
    done = installed.run(tmp_path, "-c", "import mteb", PYTHONPATH=path)
    assert done.returncode == 1
    assert "RuntimeError: obliq cannot register its tasks and models with mteb 99.1: " in done.stderr.splitlines()[-1]
    assert "OBLIQ_MTEB_HOOK=0" in done.stderr
    off = installed.ask(tmp_path, "-c", "import mteb; print('fine')", PYTHONPATH=path, OBLIQ_MTEB_HOOK="0")
    assert off == "fine\n"


@pytest.fixture
def mteb_here() -> Iterator[Any]:
    """Return mteb in this process, registered with, and forget afterwards what a test adds to its models."""
    import mteb

    registry.register_all()
    models = registry._alias_registry()
    before, aliases = dict(models), dict(models.aliases)
    yield mteb
    for known, old in ((models, before), (models.aliases, aliases)):
        for name in set(known) - set(old):
            del known[name]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mteb.get_tasks", "_TASKS_REGISTRY"),
        ("mteb.get_tasks", "TASK_LIST"),
        ("mteb.benchmarks.get_benchmark", "_build_registry"),
        ("mteb.models.model_implementations", "MODEL_REGISTRY"),
    ],
)
def test_a_registry_that_moved_is_named_with_the_version(
    mteb_here: Any, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    monkeypatch.delattr(sys.modules[module], name)
    with pytest.raises(RuntimeError, match=rf"with mteb {mteb_here.__version__}: a registry has moved .*{name}"):
        registry.register_all()


def test_a_benchmark_registry_that_is_made_anew_each_time_is_refused(
    mteb_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["mteb.benchmarks.get_benchmark"]
    monkeypatch.setattr(module, "_build_registry", module._build_registry.__wrapped__)
    with pytest.raises(RuntimeError, match="is not cached"):
        registry.register_all()


def test_a_look_up_of_models_in_another_registry_is_refused(mteb_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["mteb.models.model_implementations"], "MODEL_REGISTRY", {})
    monkeypatch.setattr(sys.modules["mteb.models.get_model_meta"], "MODEL_REGISTRY", {})
    with pytest.raises(RuntimeError, match="another object than the registry"):
        registry.register_all()


# --- what mteb knows then


OLDEST = pytest.param("installed_with_oldest_mteb", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["installed", OLDEST])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the probe's reports, from an environment in which the models of another package cannot be imported."""
    environment = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp("third-party")
    info = folder / "unlucky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unlucky\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[obliq.models]\nbad = unlucky:MODELS\n", "utf-8")
    (folder / "unlucky.py").write_text("raise OSError('no such device')\n", "utf-8")
    done = environment.run(folder, "-c", PROBE, PYTHONPATH=str(folder))
    assert done.returncode == 0, done.stderr
    return [{**report, "stderr": done.stderr} for report in json.loads(done.stdout.splitlines()[-1])]


def test_tasks_and_benchmarks_are_known(reports: list[dict[str, Any]]) -> None:
    assert reports[0]["task"] == "OBLIQ-Writing"
    assert sorted(reports[0]["tasks"]) == sorted(OFFICIAL + MINI)
    assert {name: sorted(tasks) for name, tasks in reports[0]["benchmarks"].items()} == {
        "OBLIQ-Bench": sorted(OFFICIAL),
        "OBLIQ-Mini": sorted(MINI),
    }


def test_aliases_and_full_names_resolve_and_listings_show_every_model_once(reports: list[dict[str, Any]]) -> None:
    report = reports[0]
    assert report["aliases"]["bm25"] == "obliq/bm25"
    assert report["full names"] == list(report["aliases"].values())
    assert set(report["full names"]) <= set(report["keys"])
    for listing in ("metas", "values", "keys"):
        assert len(set(report[listing])) == len(report[listing]) == report["len"], listing
    assert not set(report["aliases"]) & set(report["keys"])


def test_registering_again_and_reloading_change_nothing(reports: list[dict[str, Any]]) -> None:
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["loader"] == "SourceFileLoader"


def test_models_of_another_package_that_fail_to_import_are_warned_about(reports: list[dict[str, Any]]) -> None:
    warning = "the models of package unlucky (bad = unlucky:MODELS) are left out: OSError: no such device"
    assert warning in reports[0]["stderr"]


def test_the_tasks_module_may_be_imported_before_mteb(installed: Any, tmp_path: Path) -> None:
    code = (
        "from obliq_eval.tasks import TASKS; import mteb, obliq_eval.tasks, sys;"
        "print(type(mteb.get_task('OBLIQ-Math')) in TASKS, obliq_eval.tasks is sys.modules['obliq_eval.tasks'],"
        "obliq_eval.tasks.TASKS is TASKS)"
    )
    assert installed.ask(tmp_path, "-c", code) == "True True True\n"


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (("available-tasks", "-t", *OFFICIAL, *MINI), OFFICIAL + MINI),
        (("available-benchmarks", "-b", "OBLIQ-Bench", "OBLIQ-Mini"), ["OBLIQ-Bench", "OBLIQ-Mini", *OFFICIAL, *MINI]),
    ],
)
def test_mteb_lists_them(installed: Any, tmp_path: Path, command: tuple[str, ...], lines: list[str]) -> None:
    printed = installed.ask(tmp_path, "-m", "mteb", *command)
    words = {word.strip(",") for word in printed.split()}
    assert set(lines) <= words


# --- names that are taken


def test_aliases_answer_look_ups_and_stay_out_of_listings() -> None:
    models = registry.AliasRegistry({"a/one": 1, "a/two": 2})
    models.aliases["one"] = "a/one"
    assert (models["one"], models["a/one"], models.get("one"), "one" in models) == (1, 1, 1, True)
    assert (list(models), list(models.values()), len(models)) == (["a/one", "a/two"], [1, 2], 2)
    assert (models.get("three"), models.get("three", 3), "three" in models) == (None, 3, False)
    with pytest.raises(KeyError, match="three"):
        models["three"]


def test_a_model_may_be_added_again_and_another_one_of_its_name_may_not(mteb_here: Any) -> None:
    meta = to_meta(resolve("bm25"))
    registry.add_model(meta, "bm25")
    other = meta.model_copy(update={"loader": Loader("elsewhere:load")})
    with pytest.raises(UserError, match="another model called obliq/bm25"):
        registry.add_model(other)


def test_an_alias_of_another_model_is_refused_before_anything_is_added(mteb_here: Any) -> None:
    meta = to_meta(resolve("bm25")).model_copy(update={"name": "someone/else"})
    with pytest.raises(UserError, match="the alias bm25 already means obliq/bm25"):
        registry.add_model(meta, "bm25")
    assert "someone/else" not in registry._alias_registry()
    registry.add_model(meta, "mine")
    assert mteb_here.get_model_meta("mine").name == "someone/else"


def test_a_task_of_mteb_with_one_of_our_names_is_refused(mteb_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = sys.modules["mteb.get_tasks"]._TASKS_REGISTRY
    monkeypatch.setitem(known, "OBLIQ-Writing", known["NFCorpus"])
    with pytest.raises(UserError, match="mteb has another task called OBLIQ-Writing"):
        registry.register_all()
    assert known["OBLIQ-Writing"] is known["NFCorpus"]


def test_a_benchmark_of_mteb_with_one_of_our_names_is_refused(mteb_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = sys.modules["mteb.benchmarks.get_benchmark"]._build_registry()
    monkeypatch.setitem(known, "OBLIQ-Mini", known["NanoBEIR"])
    with pytest.raises(UserError, match="mteb has another benchmark called OBLIQ-Mini"):
        registry.register_all()


# --- coming and going


def test_an_installed_wheel_is_gone_after_uninstalling(
    new_environment: Callable[[], Any], wheel: Path, tmp_path: Path
) -> None:
    environment = new_environment()
    environment.install(wheel)
    assert HOOK_FILE in left_of_obliq(environment)
    path = write_mteb(tmp_path / "fake")
    assert environment.run(tmp_path, "-c", "import mteb", PYTHONPATH=path).returncode == 1  # no mteb to register with
    environment.pip("uninstall", "-q", "-y", "obliq")
    assert left_of_obliq(environment) == []
    code = "import mteb, sys; print([name for name in sys.modules if 'obliq' in name])"
    assert environment.ask(tmp_path, "-c", code, PYTHONPATH=path) == "[]\n"


def test_an_editable_install_has_the_hook_too(
    new_environment: Callable[[], Any], checkout: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a checkout"
    shutil.copytree(checkout, folder)
    environment = new_environment()
    environment.install("-e", folder)
    assert HOOK_FILE in left_of_obliq(environment)
    assert "obliq_eval" not in left_of_obliq(environment)
    code = f"{FINDS_WRITING}; import obliq_eval.tasks; print(obliq_eval.tasks.__file__)"
    expected = f"OBLIQ-Writing\n{folder / 'obliq_eval' / 'tasks.py'}\n"
    assert environment.ask(tmp_path, "-c", code) == expected
    environment.pip("uninstall", "-q", "-y", "obliq")
    assert left_of_obliq(environment) == []
    assert finders(environment, tmp_path) == 0
