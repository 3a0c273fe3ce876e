"""The wheel of ``make dist`` holds the whole package and runs with its dependencies alone; without one, skipped."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel():
    wheels = sorted((ROOT / "dist").glob("calibrant-*.whl"))
    if not wheels:
        pytest.skip("needs a wheel (make dist)")
    newest = max(path.stat().st_mtime for path in SOURCE.rglob("*") if path.suffix in {".py", ".js", ".css", ".json"})
    if wheels[-1].stat().st_mtime < newest:
        pytest.skip(f"{wheels[-1].name} is older than the source (make dist)")
    return wheels[-1]


def required_by(name, names=None):
    """Return the names of all packages that one needs, without extras."""
    from packaging.requirements import Requirement  # of pytest

    names = set() if names is None else names
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        wanted = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if wanted not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(wanted)
            required_by(wanted, names)
    return names


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment of the wheel and of links to what it requires: downloading torch again would take minutes."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, env=clean_environment(), check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in required_by("calibrant"):
        files = distribution(name).files
        for top in {file.parts[0] for file in files if file.parts[0] not in {"..", "__pycache__"}}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution(name).locate_file(top))
    return folder


def clean_environment():
    """The variables of this process but those by which Python would find the source."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run_in(environment, name, *arguments, cwd):
    command = [environment / "bin" / name, *arguments]
    done = subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_holds_every_file_of_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    files = {path for path in (SOURCE / "calibrant").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    expected = {path.relative_to(SOURCE).as_posix(): path for path in files}
    assert set(held) == set(expected)
    assert [name for name, path in expected.items() if path.read_bytes() != held[name]] == []
    for ending in (".npz", "index.json", "references.json", ".js", ".css", "py.typed", ".pyi"):
        assert any(name.endswith(ending) for name in held), ending


def test_the_package_is_the_wheels_own_and_brings_no_tools(environment, tmp_path):
    script = "import calibrant, importlib.util as u; print(calibrant.__file__, u.find_spec('pytest'), u.find_spec('pooch'))"
    file, *others = run_in(environment, "python", "-c", script, cwd=tmp_path).split()
    assert Path(file).is_relative_to(environment)
    assert others == ["None", "None"]


def test_the_demo_runs_without_extras(environment, tmp_path):
    assert "calibrant serve" in run_in(environment, "calibrant", "demo", cwd=tmp_path)
    for name in ("report.html", "comparison.md", "reliability.png", "clamped/clamped.safetensors"):
        assert (tmp_path / "demo" / name).stat().st_size > 1000, name
    shutil.rmtree(tmp_path / "demo")
