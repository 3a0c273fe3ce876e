"""CIFAR from every layout, and every way in which its files can be wrong."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from calibrant.datasets.cifar import CIFAR10, CIFAR100, read_human_labels
from calibrant.datasets.publisher_files import content_digest
from calibrant.errors import FileError
from calibrant.losses import CrossEntropyLoss

N = 7  # images a file
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def content():
    """Labels, coarse labels and pixels of six files."""
    random = np.random.default_rng(0)
    return {
        name: {
            "fine": random.integers(0, 10, N),
            "coarse": random.integers(0, 20, N),
            "pixels": random.integers(0, 256, (N, 3072), dtype=np.uint8),
        }
        for name in (*BATCHES, "test_batch")
    }


def records(held, *, coarse=False):
    columns = [held["coarse"][:, None]] * coarse + [held["fine"][:, None], held["pixels"]]
    return np.hstack(columns).astype(np.uint8).tobytes()


def binary10(content):
    return {f"{name}.bin": records(held) for name, held in content.items()}


def python10(content, write):
    return {
        name: write(
            {"batch_label": "b", "labels": held["fine"].tolist(), "data": held["pixels"], "filenames": ["x"] * N}
        )
        for name, held in content.items()
    }


def binary100(content):
    named = {"train.bin": "data_batch_1", "test.bin": "test_batch"}
    return {name: records(content[source], coarse=True) for name, source in named.items()}


def python100(content, write):
    return {
        name: write(
            {
                "coarse_labels": content[source]["coarse"].tolist(),
                "fine_labels": content[source]["fine"].tolist(),
                "data": content[source]["pixels"],
            }
        )
        for name, source in {"train": "data_batch_1", "test": "test_batch"}.items()
    }


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, held in files.items():
        (folder / name).write_bytes(held)


def expected(content, names):
    images = np.concatenate([content[name]["pixels"] for name in names]).reshape(-1, 3, 32, 32)
    return torch.from_numpy(images), torch.from_numpy(np.concatenate([content[name]["fine"] for name in names]))


def check(dataset, content, training):
    for part, names in ((dataset.training, training), (dataset.test, ["test_batch"])):
        images, labels = expected(content, names)
        assert part.inputs.dtype == torch.uint8
        assert part.inputs.is_contiguous()
        assert torch.equal(part.inputs, images)
        assert torch.equal(part.labels, labels)


@pytest.mark.parametrize("sub", ["", "cifar-10-batches-bin"])
def test_cifar10_from_the_binary_files(tmp_path, content, sub):
    put(tmp_path / sub, binary10(content))
    dataset = CIFAR10().read(tmp_path, checked=False)
    check(dataset, content, BATCHES)
    assert dataset.class_names[3] == "cat"
    assert dataset.augmentation == "crop-flip"


@pytest.mark.parametrize("sub", ["", "cifar-10-batches-py"])
def test_cifar10_from_the_pickles_of_python_2(tmp_path, content, python2_pickle, sub):
    put(tmp_path / sub, python10(content, python2_pickle))
    check(CIFAR10().read(tmp_path, checked=False), content, BATCHES)


@pytest.mark.parametrize("sub", ["", "cifar-100-binary"])
def test_cifar100_from_the_binary_files_takes_the_fine_labels(tmp_path, content, sub):
    put(tmp_path / sub, binary100(content))
    dataset = CIFAR100().read(tmp_path, checked=False)
    check(dataset, content, ["data_batch_1"])
    assert (dataset.n_classes, dataset.class_names[0], dataset.class_names[99]) == (100, "apple", "worm")
    assert dataset.pixel_scale.mean == (0.5071, 0.4865, 0.4409)


@pytest.mark.parametrize("sub", ["", "cifar-100-python"])
def test_cifar100_from_the_pickles(tmp_path, content, python2_pickle, sub):
    put(tmp_path / sub, python100(content, python2_pickle))
    check(CIFAR100().read(tmp_path, checked=False), content, ["data_batch_1"])


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar.xz", ".tar"])
def test_straight_from_the_archive_whatever_the_order_inside(tmp_path, content, pack, ending):
    files = binary10(content)
    shuffled = {"batches.meta.txt": b"airplane\n", **dict(reversed(files.items()))}
    pack(tmp_path / f"cifar-10-binary{ending}", shuffled, "cifar-10-batches-bin")
    check(CIFAR10().read(tmp_path, checked=False), content, BATCHES)
    assert len(list(tmp_path.iterdir())) == 1  # nothing was unpacked
    check(CIFAR10().read(tmp_path / f"cifar-10-binary{ending}", checked=False), content, BATCHES)


def test_straight_from_the_archive_of_pickles(tmp_path, content, pack, python2_pickle):
    pack(tmp_path / "cifar-100-python.tar.gz", python100(content, python2_pickle), "cifar-100-python")
    check(CIFAR100().read(tmp_path, checked=False), content, ["data_batch_1"])


def test_todays_pickles_are_read_too(tmp_path, content):
    put(tmp_path, python10(content, pickle.dumps))
    check(CIFAR10().read(tmp_path, checked=False), content, BATCHES)


@pytest.fixture
def small_edition(monkeypatch, content):
    """CIFAR-100 as if it had been published with the images of these tests."""
    digests = tuple(
        content_digest(content[name]["fine"].astype(np.uint8), content[name]["pixels"])
        for name in ("data_batch_1", "test_batch")
    )
    layouts = (replace(CIFAR100.layouts[0], sizes=(N * 3074,) * 2), CIFAR100.layouts[1])
    monkeypatch.setattr(CIFAR100, "digests", digests)
    monkeypatch.setattr(CIFAR100, "layouts", layouts)


@pytest.mark.usefixtures("small_edition")
def test_both_layouts_pass_the_same_check(tmp_path, content, python2_pickle):
    put(tmp_path / "a", binary100(content))
    put(tmp_path / "b", python100(content, python2_pickle))
    for name in "ab":
        check(CIFAR100().read(tmp_path / name), content, ["data_batch_1"])


@pytest.mark.usefixtures("small_edition")
@pytest.mark.parametrize("place", [1, 5, N * 3074 - 1])
def test_one_changed_byte_is_found_and_may_be_waived(tmp_path, content, place):
    files = binary100(content)
    changed = bytearray(files["test.bin"])
    changed[place] = (changed[place] + 1) % 100
    put(tmp_path, {**files, "test.bin": bytes(changed)})
    with pytest.raises(
        FileError, match=r"the test part of cifar100 .* published data, sha256:.*; got sha256:.*checked=F"
    ):
        CIFAR100().read(tmp_path)
    assert len(CIFAR100().read(tmp_path, checked=False).test) == N


def test_the_published_digests_are_asked_for(tmp_path, content):
    put(tmp_path, binary100(content))
    with pytest.raises(FileError, match=r"train\.bin must have 153,700,000 bytes; got 21,518"):
        CIFAR100().read(tmp_path)


def test_a_truncated_file_is_refused_even_unchecked(tmp_path, content):
    files = binary10(content)
    put(tmp_path, {**files, "data_batch_4.bin": files["data_batch_4.bin"][:-10]})
    with pytest.raises(FileError, match=r"data_batch_4\.bin must hold whole images of 3,073 bytes.*got 21,501 bytes"):
        CIFAR10().read(tmp_path, checked=False)
    put(tmp_path, {**files, "data_batch_4.bin": b""})
    with pytest.raises(FileError, match=r"data_batch_4\.bin must hold whole images.*0 images and 0 bytes"):
        CIFAR10().read(tmp_path, checked=False)


@pytest.mark.parametrize("ending", [".tar.gz", ".tar.xz", ".tar"])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_truncated_archive_is_refused(tmp_path, content, pack, ending, share):
    path = tmp_path / f"cifar-10-binary{ending}"
    pack(path, binary10(content), "cifar-10-batches-bin")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(FileError, match=r"cifar-10-binary.*(cut short|missing)"):
        CIFAR10().read(tmp_path, checked=False)


def test_a_changed_byte_in_a_compressed_archive_is_found_even_unchecked(tmp_path, content, pack):
    path = tmp_path / "cifar-10-binary.tar.gz"
    pack(path, binary10(content), "cifar-10-batches-bin")
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1  # random pixels do not compress, so this is a pixel
    path.write_bytes(changed)
    with pytest.raises(FileError, match="must be a whole gzip file"):
        CIFAR10().read(tmp_path, checked=False)


def test_an_archive_that_lacks_a_file_is_refused(tmp_path, content, pack):
    pack(tmp_path / "cifar-100-binary.tar.gz", {"train.bin": binary100(content)["train.bin"]}, "cifar-100-binary")
    with pytest.raises(FileError, match=r"must hold train\.bin and test\.bin.*missing: test\.bin"):
        CIFAR100().read(tmp_path, checked=False)


def test_missing_files_are_named_with_where_to_get_them(tmp_path, content):
    files = binary100(content)
    put(tmp_path, {"train.bin": files["train.bin"]})
    with pytest.raises(FileError) as caught:
        CIFAR100().read(tmp_path)
    message = str(caught.value)
    assert message.startswith("cifar100 needs train.bin and test.bin (or cifar-100-binary.tar.gz)")
    assert f"in {tmp_path}; missing: test.bin." in message
    assert "https://www.cs.toronto.edu/~kriz/cifar.html" in message
    assert "calibrant.datasets.download(...) (--download)" in message


def test_the_message_speaks_of_the_layout_that_was_begun(tmp_path, content, python2_pickle):
    put(tmp_path, {"test": python100(content, python2_pickle)["test"]})
    with pytest.raises(FileError, match=r"missing: train\."):
        CIFAR100().read(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileError, match="nowhere is not there"):
        CIFAR10().read(tmp_path / "nowhere")


def test_the_other_cifar_under_this_name_is_refused(tmp_path, content, python2_pickle):
    files = python100(content, python2_pickle)
    put(tmp_path, dict.fromkeys((*BATCHES, "test_batch"), files["train"]))
    with pytest.raises(FileError, match=r"must hold 'labels'.*may be the other one"):
        CIFAR10().read(tmp_path, checked=False)


@pytest.mark.parametrize("label", [10, 255])
def test_a_label_beyond_the_classes_is_refused(tmp_path, content, label):
    files = binary10(content)
    wrong = bytearray(files["test_batch.bin"])
    wrong[2 * 3073] = label
    put(tmp_path, {**files, "test_batch.bin": bytes(wrong)})
    with pytest.raises(FileError, match=rf"test_batch\.bin must have labels in 0\.\.9; got {label} at image 2"):
        CIFAR10().read(tmp_path, checked=False)


@pytest.mark.parametrize("label", [-1, 100, 2**40])
def test_a_pickled_label_beyond_the_classes_is_refused(tmp_path, content, label):
    files = python100(content, pickle.dumps)
    wrong = {"fine_labels": [0, label] + [0] * (N - 2), "data": content["test_batch"]["pixels"]}
    put(tmp_path, {**files, "test": pickle.dumps(wrong)})
    with pytest.raises(FileError, match=rf"labels in 0\.\.99; got {label} at image 1"):
        CIFAR100().read(tmp_path, checked=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fine_labels": [0] * N},
        {"fine_labels": [0] * N, "data": np.zeros((N, 3071), dtype=np.uint8)},
        {"fine_labels": [0] * N, "data": np.zeros(3072, dtype=np.uint8)},
        {"fine_labels": [0] * N, "data": "pixels"},
        {"fine_labels": [0] * (N - 1), "data": np.zeros((N, 3072), dtype=np.uint8)},
        {"fine_labels": ["0"] * N, "data": np.zeros((N, 3072), dtype=np.uint8)},
        {"data": np.zeros((N, 3072), dtype=np.uint8)},
    ],
)
def test_a_pickle_of_another_layout_is_refused(tmp_path, content, wrong):
    put(tmp_path, {**python100(content, pickle.dumps), "test": pickle.dumps(wrong)})
    with pytest.raises(FileError, match=r"test must hold '(data|fine_labels)'"):
        CIFAR100().read(tmp_path, checked=False)


class TestHumanLabels:
    def test_counts_and_shares_give_the_same_soft_labels(self, tmp_path):
        counts = np.random.default_rng(0).integers(0, 60, (20, 10))
        np.save(tmp_path / "counts.npy", counts)
        np.save(tmp_path / "probs.npy", (counts / counts.sum(1, keepdims=True)).astype(np.float32))
        labels, shares = (read_human_labels(tmp_path / f"{name}.npy") for name in ("counts", "probs"))
        torch.testing.assert_close(labels, shares, rtol=1e-6, atol=1e-7)
        logits = torch.randn(20, 10, dtype=torch.float64)
        expected = -(labels * logits.log_softmax(1)).sum(1).mean()
        torch.testing.assert_close(CrossEntropyLoss()(logits, labels), expected)

    @pytest.mark.parametrize("wrong", [[[1, -1], [1, 1]], [[0, 0], [1, 1]], [1, 2], [[np.nan, 1.0]], [["a", "b"]]])
    def test_what_is_no_table_of_answers_is_refused(self, tmp_path, wrong):
        np.save(tmp_path / "wrong.npy", np.array(wrong))
        with pytest.raises(FileError, match="must hold numbers of answers or their shares"):
            read_human_labels(tmp_path / "wrong.npy")
