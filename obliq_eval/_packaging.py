"""Put the start-up line of the mteb hook into the installation, from wheels and from editable installs alike."""

from __future__ import annotations

from pathlib import Path

from setuptools.command.build_py import build_py

HOOK_FILE = "obliq_mteb_hook.pth"
# Every interpreter of the environment runs this line, so it imports nothing and searches no folder: it adds a finder
# that turns to `obliq_eval.hook` when mteb is looked for. Code in a start-up file must fit on one line. In a virtual
# environment Python reads the file twice; `obliq_eval.hook` allows for several finders.
HOOK_LINE = (
    "import sys; sys.meta_path.insert(0, "
    'type("Finder", (), {"__module__": "obliq_eval.hook", "find_spec": staticmethod('
    "lambda name, path=None, target=None: "
    '__import__("obliq_eval.hook").hook.find_spec(name, path, target) if name == "mteb" else None)}))\n'
)


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types where it is not installed
    """`build_py` that also writes the hook's `.pth` file.

    A wheel takes it from the build folder. An editable wheel has no such folder: what lands in the finalized
    `install` command's `install_lib` is what is packed.
    """

    def _target(self) -> Path:
        if self.editable_mode:
            install = self.get_finalized_command("install")
            return Path(install.install_lib or "") / HOOK_FILE
        return Path(self.build_lib) / HOOK_FILE

    def run(self) -> None:
        """Build the packages, then write the hook's file beside them."""
        super().run()
        target = self._target()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(HOOK_LINE, encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return what was built, the hook's file included."""
        return [*super().get_outputs(include_bytecode), str(self._target())]
