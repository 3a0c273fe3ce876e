import importlib.metadata
from pathlib import Path

import pytest

import calibrant

SOURCE = Path(calibrant.__file__)


def test_every_public_name_can_be_had():
    for name in calibrant.__all__:
        assert getattr(calibrant, name) is not None


def test_public_names_are_sorted_and_few_enough_to_read():
    assert calibrant.__all__ == sorted(calibrant.__all__)
    assert len(calibrant.__all__) <= 80
    assert dir(calibrant) == calibrant.__all__


def test_the_version_is_known_also_where_only_the_source_is(monkeypatch):
    assert calibrant.__version__ == importlib.metadata.version("calibrant")

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert calibrant.__version__ == "not installed"


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        calibrant.no_such_name  # noqa: B018


@pytest.mark.parametrize("package", ["metrics", "evidence", "report", "files", "diagrams", "plots", "datasets"])
def test_a_folder_exports_exactly_what_it_says(package):
    module = importlib.import_module(f"calibrant.{package}")
    assert all(hasattr(module, name) for name in module.__all__)
