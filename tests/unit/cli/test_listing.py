"""``calibrant list``: everything there is stands in the list, with facts that are those of the thing itself."""

import re

import pytest

from calibrant.catalogue import all_losses
from calibrant.datasets import all_datasets
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


def test_every_loss_is_listed_with_what_it_judges_and_whether_it_takes_soft_labels(listed):
    rows = listed("losses")
    for name, loss in all_losses().items():
        judges = "rows" if isinstance(loss, RowLoss) else "batch"
        soft = ["yes"] if loss.takes_soft_labels else []
        assert rows[name][1:] == [judges, *soft, loss.paper.short]
    assert rows["mmce"] == ["Maximum mean calibration error", "batch", "Kumar et al. (2018)"]
    assert rows["brier"] == ["Brier loss", "rows", "yes", "Brier (1950)"]


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
    for name, reader in all_datasets().items():
        assert rows[name][0] == reader.title
        assert (rows[name][-1] == "yes") == bool(reader.remote)
    assert rows["cifar100"] == ["CIFAR-100", "100", "https://www.cs.toronto.edu/~kriz/cifar.html", "yes"]
    assert rows["digits"][-1] == "comes with the package"
    assert rows["image_folder"] == ["Folders of pictures", "your own, laid out as ImageNet is"]


def test_the_number_of_classes_is_the_reader_s_own(listed):
    rows = listed("datasets")
    known = {name: reader.n_classes for name, reader in all_datasets().items() if isinstance(reader.n_classes, int)}
    assert {name: rows[name][1] for name in known} == {name: str(count) for name, count in known.items()}
    assert set(all_datasets()) - set(known) == {"image_folder", "medmnist"}  # the one's classes are its folders
    assert rows["medmnist"] == ["MedMNIST", "2 to 11", "https://zenodo.org/records/10519652", "with a flag"]


def test_what_cannot_be_listed_is_refused(calibrant):
    code, _, err = calibrant("list", "optimisers")
    assert code == 2
    assert all(kind in err for kind in ("calibrators", "datasets", "losses", "metrics", "models"))
