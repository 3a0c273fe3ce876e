"""``python -m calibrant`` is the command ``calibrant``."""

from calibrant.cli.main import run

if __name__ == "__main__":
    run()
