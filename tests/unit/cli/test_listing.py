"""``calibrant list``: everything there is stands in the list, with facts that are those of the thing itself."""

import json
import re
import subprocess
import sys

import pytest

from calibrant import catalogue
from calibrant.cli import listing
from calibrant.losses import RowLoss
from calibrant.models import all_models, build_model


@pytest.fixture
def listed(calibrant):
    """The rows of a list by name, the cells of each as texts; empty cells are lost."""

    def rows_of(kind):
        code, out, err = calibrant("list", kind)
        assert code == 0, err
        cells = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
        return {row[0]: row[1:] for row in cells}

    return rows_of


def test_every_loss_is_listed_with_what_it_evaluates_and_whether_it_takes_soft_labels(listed):
    rows = listed("losses")
    for name, loss in catalogue.losses.items():
        evaluates = "samples" if isinstance(loss, RowLoss) else "batch"
        soft = ["yes"] if loss.takes_soft_labels else []
        assert rows[name][1:] == [evaluates, *soft, loss.paper.short]
    assert rows["mmce"] == ["Maximum mean calibration error", "batch", "Kumar et al. (2018)"]
    assert rows["brier"] == ["Brier loss", "samples", "yes", "Brier (1950)"]


def test_every_network_is_listed_with_its_size_its_input_and_its_paper(listed):
    rows = listed("models")
    assert set(all_models()) < set(rows)
    assert rows["resnet110"] == ["ResNet-110", "1,727,962", "images from 4 x 4", "He et al. (2016)"]
    assert rows["vgg16_bn"][2] == "images from 16 x 16"
    assert rows["text_cnn"][2] == "texts"
    assert rows["digits_cnn"][0] == "Small CNN"  # ours, without a paper
    assert len(rows["digits_cnn"]) == 3


@pytest.mark.parametrize("name", ["resnet20", "densenet121", "digits_cnn", "text_cnn"])
def test_the_size_of_a_network_is_that_of_a_built_one(listed, name):
    n_words = 20_000 if name == "text_cnn" else None
    built = build_model(name, n_classes=10, n_words=n_words)
    assert listed("models")[name][1] == f"{sum(weight.numel() for weight in built.parameters()):,}"


def test_every_data_set_is_listed_with_where_to_get_it(listed):
    rows = listed("datasets")
    for name, reader in catalogue.datasets.items():
        assert rows[name][0] == reader.title
        assert (rows[name][-1] == "yes") == bool(reader.remote)
    assert rows["cifar100"] == ["CIFAR-100", "100", "https://www.cs.toronto.edu/~kriz/cifar.html", "yes"]
    assert rows["digits"][-1] == "comes with the package"
    assert rows["image_folder"] == ["Folders of pictures", "your own, laid out as ImageNet is"]


def test_the_number_of_classes_is_the_reader_s_own(listed):
    rows = listed("datasets")
    known = {name: reader.n_classes for name, reader in catalogue.datasets.items() if isinstance(reader.n_classes, int)}
    assert {name: rows[name][1] for name in known} == {name: str(count) for name, count in known.items()}
    # The classes of folders are the folders.
    assert set(catalogue.datasets) - set(known) == {"image_folder", "large_image_folder", "medmnist"}
    assert rows["medmnist"] == ["MedMNIST", "2 to 11", "https://zenodo.org/records/10519652", "with a flag"]


def test_without_a_kind_everything_is_listed(calibrant):
    code, out, err = calibrant("list")
    assert code == 0, err
    titles = [line for line in out.splitlines() if line in {kind.upper() for kind in listing.Kind}]
    assert titles == [kind.upper() for kind in listing.Kind]
    for name in ("temperature", "ece", "focal", "resnet20", "cifar10", "gaussian_noise"):
        assert f"\n{name} " in out


def test_what_cannot_be_listed_is_refused(calibrant):
    code, _, err = calibrant("list", "optimisers")
    assert code == 2
    assert all(kind in err for kind in ("calibrators", "datasets", "losses", "metrics", "models"))


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["list"], ["list", "models"], ["list", "calibrators"], ["cite", "ece"], ["cite", "temperature+irm"]],
)
def test_what_only_tells_what_there_is_does_not_load_torch(arguments):
    code = (
        "import sys\n"
        "from calibrant.cli.main import app\n"
        "app(standalone_mode=False)\n"
        "assert not {'torch', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules), 'too much is loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.fixture
def other_index(tmp_path, monkeypatch):
    """Have the command line read another index, made from this one."""

    def use(change):
        document = json.loads(listing.INDEX.read_text(encoding="utf-8"))
        change(document)
        path = tmp_path / "index.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        monkeypatch.setattr(listing, "INDEX", path)
        listing._index.cache_clear()

    yield use
    monkeypatch.undo()
    listing._index.cache_clear()


def test_the_classes_are_asked_where_a_folder_exports_more_than_the_index_knows(other_index, listed):
    def forget(document):
        document["exports"]["losses"].remove("FocalLoss")
        document["lists"]["losses"] = [row for row in document["lists"]["losses"] if row[0] != "focal"]
        del document["papers"]["focal"]

    other_index(forget)
    assert listing._index() is None
    assert listed("losses")["focal"][0] == "Focal loss"


def test_without_an_index_everything_is_still_listed_and_cited(other_index, listed, calibrant):
    other_index(lambda document: document["exports"].update(metrics=[]))
    assert listed("metrics")["ece"][0] == "Expected calibration error"
    code, out, _ = calibrant("cite", "temperature+isotonic")
    assert code == 0
    assert "Guo et al. (2017)" in out
    assert "Zadrozny & Elkan (2002)" in out


def test_the_index_gives_the_papers_that_the_classes_give():
    from calibrant.catalogue import find_papers

    for name in ("ece", "mmce", "piece", "temperature", "temperature+isotonic", "density_ratio", "focal", "meta_l2"):
        assert listing.listed_papers(name) == find_papers(name)
    assert listing.listed_papers("ece+mce") is None  # metrics make no chain
    assert listing.listed_papers("digits_cnn") is None  # our own
    assert listing.listed_papers("temperature(criterion=focal)") is None  # options are for the classes to read
