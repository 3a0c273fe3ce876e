"""What the tests of the commands share."""

import sys

import pytest

from calibrant.cli.main import run


@pytest.fixture
def calibrant(capsys, monkeypatch):
    """The command, run in this process: exit code, standard output and standard error."""

    def run_command(*arguments, **environment):
        monkeypatch.setattr(sys, "argv", ["calibrant", *map(str, arguments)])
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as stopped:
            run()
        return stopped.value.code or 0, *capsys.readouterr()

    return run_command
