"""README and docs are run: every Python block, every calibrant command, and what they print."""

import contextlib
import io
import shlex
import sys
import warnings
from pathlib import Path

import pytest
from markdown_blocks import blocks_of, same_text

from calibrant.cli.main import run

ROOT = Path(__file__).parents[2]
DOORS = ROOT / "docs" / "use_with.md"  # its sections are run one by one, as each needs another framework
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page != DOORS),
    ROOT / "CONTRIBUTING.md",
]
SECTIONS = DOORS.read_text(encoding="utf-8").split("\n## ")[1:]


@pytest.mark.parametrize(
    ("said", "printed", "is_same"),
    [
        ("ece 0.030, T 1.91", "ece  0.030,\nT 1.91", True),
        ("ece 0.030", "ece 0.031", True),
        ("ece 0.030", "ece 0.032", False),
        ("interval 0.2151 to 0.2567", "interval 0.2150 to 0.2569", False),
        ("74.1 % sure", "74.0 % sure", True),
        ("74.1 % sure", "74.1 % right", False),
        ("1,000 rows", "1000 rows", True),
        ("1,000 rows", "1,001 rows", False),
        ("-0.0002", "0.0002", False),
        ("gradient 1.6e-04", "gradient 1.7e-04", True),
        ("gradient 1.6e-04", "gradient 1.8e-04", False),
        ("first 0.5\n…\nlast 0.7", "first 0.5\nbetween 3\nlast 0.7\nend", True),
        ("first 0.5\n…\nlast 0.7", "first 0.5\nbetween 3\nlast 0.9", False),
    ],
)
def test_a_printed_number_may_differ_by_one_unit_in_its_last_place(said, printed, is_same):
    assert same_text(said, printed) == is_same


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory; modules that a page writes there are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_and_print_what_it_says(page, monkeypatch):
    run_blocks(page.read_text(encoding="utf-8"), page.name, monkeypatch)


@pytest.mark.usefixtures("folder")
# Lightning remarks on loaders and loggers, and asks torch in a way that a newer one warns of.
@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*LeafSpec", "ignore::UserWarning:lightning")
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_the_blocks_about_a_framework_run_where_it_is_installed(section, monkeypatch):
    try:
        run_blocks(section, DOORS.name, monkeypatch)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("calibrant"):
            raise
        pytest.skip(f"{error.name} is not installed")


def run_blocks(text, name, monkeypatch):
    names = {"__name__": "page"}
    printed = ""
    for block in blocks_of(text):
        if block.language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(block.code, f"{name}:{block.line}", "exec"), names)  # noqa: S102  # our own pages
            printed = stream.getvalue()
        elif block.language == "console":
            printed = run_commands(block.code, monkeypatch)
        elif block.language == "text":
            assert same_text(block.code, printed), f"line {block.line} says\n{block.code}\nbut printed\n{printed}"


def run_commands(code, monkeypatch):
    """Run the commands in this process, which has torch loaded, as a shell would: warnings are shown, not raised."""
    printed = io.StringIO()
    for line in code.splitlines():
        command = shlex.split(line.removeprefix("$ "), comments=True)
        if not command or command[0] in {"make", "git", "cd"}:
            continue  # what make does is what runs these tests
        assert command[0] == "calibrant", f"a console block may run calibrant and make; got {line!r}"
        monkeypatch.setattr(sys, "argv", command)
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as stopped:
                run()
        assert stopped.value.code in {None, 0, 1}, f"{line}\n{printed.getvalue()}"
    return printed.getvalue()


def test_written_pages_are_what_the_docstrings_say(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import build

    written = build.pages()
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run `make docs`"
    assert set((ROOT / "docs" / "calibrators").glob("*.md")) <= set(written), "run `make docs`"


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_folder_of_the_package_stands_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (ROOT / "src" / "calibrant").glob("*/__init__.py")}
    assert {name for name in folders if f"{name}/" not in readme} == set()
