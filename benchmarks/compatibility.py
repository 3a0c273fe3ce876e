"""Tests the package on other versions of Python and of its dependencies; run by ``make compatibility``.

Python 3.11 to 3.13 with the pinned versions, and the first of them with the lowest versions that pyproject.toml allows,
each in an environment of its own below .venv-compatibility. An interpreter that is not there is left out with a line
that says so. ``make compatibility TESTS="tests/unit/files" PYTHONS="3.12"`` runs other tests on other interpreters,
versions or paths. Where the pinned torch has no CPU build for an interpreter, pip would fetch gigabytes: set
PIP_EXTRA_INDEX_URL to an index of CPU builds, or say ``TORCH=2.10.0`` for another version on all but the first one.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-compatibility"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "scikit-learn", "pandas", "polars", "pooch")


def lowest_constraints() -> list[str]:
    """Return the lowest allowed version of every dependency, as constraints."""
    bounds = (re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in PROJECT["dependencies"])
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def with_torch(version: str, pinned: list[str]) -> list[str]:
    """Return the pinned versions, with another one of torch where it is given."""
    return [f"torch=={version}" if version and line.startswith("torch==") else line for line in pinned]


def version_of(python: str) -> str | None:
    """Return the version of an interpreter, or None where it does not run."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def tried(python: str, name: str, constraints: list[str], tests: list[str]) -> bool:
    """Install into an environment and return whether the tests pass there."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "constraints.txt").write_text("\n".join(constraints) + "\n", encoding="utf-8")
    subprocess.run([python, "-m", "venv", "--clear", folder / "venv"], check=True)
    inside = str(folder / "venv" / "bin" / "python")
    install = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*install, "--constraint", folder / "constraints.txt", ROOT, *TOOLS], check=False)
    test = [inside, "-m", "pytest", "--numprocesses", "2", *tests]
    return installed.returncode == 0 and subprocess.run(test, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Try every version and print one line about each; return 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", default="3.11 3.12 3.13", help="Versions, or paths of interpreters.")
    parser.add_argument("--tests", default="tests/contracts tests/unit", help="What pytest runs.")
    parser.add_argument("--torch", default="", help="Version of torch in place of the pinned one, but for the first.")
    options = parser.parse_args()
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    outcomes = {}
    for number, wanted in enumerate(options.pythons.split()):
        python = wanted if "/" in wanted else f"python{wanted}"
        version = version_of(python)
        if version is None:
            outcomes[f"Python {wanted}"] = "skipped: there is no such interpreter"
            continue
        if number == 0:
            cases = {f"python-{version}": pinned, f"lowest-{version}": lowest_constraints()}
        else:
            cases = {f"python-{version}": with_torch(options.torch, pinned)}
        for name, constraints in cases.items():
            passed = tried(python, name, constraints, options.tests.split())
            outcomes[name] = "passed" if passed else "failed"
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")
    return int("failed" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
