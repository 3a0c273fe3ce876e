"""Data sets that are folders of picture files: Tiny-ImageNet and a person's own."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.clamping import NetworkPredictions
from calibrant.datasets import image_folder, read_shifted
from calibrant.datasets.image_folder import (
    ImageFolder,
    ImageNet,
    LargeImageFolder,
    PictureDataset,
    TinyImageNet,
    pictures_by_class,
)
from calibrant.datasets.pictures import Pictures
from calibrant.errors import FileError, InputError


def save(path, colour, *, size=(64, 64), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def tiny(tmp_path):
    """Three classes; the files list them out of order, and one picture is grey."""
    root = tmp_path / "tiny-imagenet-200"
    for number, wnid in enumerate(["n003", "n001", "n002"]):
        for picture in range(2):
            save(root / "train" / wnid / "images" / f"{wnid}_{picture}.JPEG", (40 * number, 100, 10 * picture))
    save(root / "train" / "n002" / "images" / "n002_1.JPEG", 77, mode="L")
    for number, wnid in enumerate(["n002", "n001", "n003", "n001"]):
        save(root / "val" / "images" / f"val_{number}.JPEG", (0, 0, 200))
        with (root / "val" / "val_annotations.txt").open("a") as file:
            file.write(f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (root / "wnids.txt").write_text("n003\nn001\nn002\n")
    (root / "words.txt").write_text(
        "n001\tgoldfish, Carassius auratus\nn002\ttailed frog\nn003\tEgyptian cat\nn9\tcow\n"
    )
    return root


@pytest.mark.parametrize("inside", [False, True])
def test_tiny_imagenet_numbers_classes_by_wordnet_name(tiny, inside):
    dataset = TinyImageNet().read(tiny if inside else tiny.parent, checked=False)
    assert dataset.class_names == ("goldfish", "tailed frog", "Egyptian cat")
    assert dataset.training.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [1, 0, 2, 0]
    assert tuple(dataset.training.inputs.shape) == (6, 3, 64, 64)
    assert (dataset.training.inputs[0, :, 5, 5].int() - torch.tensor([40, 100, 0])).abs().max() <= 3  # JPEG is lossy
    assert dataset.training.inputs[3, :, 5, 5].tolist() == [77, 77, 77]
    assert dataset.validation is None


def test_tiny_imagenet_must_have_all_its_pictures_unless_unchecked(tiny, monkeypatch):
    with pytest.raises(
        FileError, match="must hold 200 classes, 100,000 training and 10,000 validation pictures; got 3, 6"
    ):
        TinyImageNet().read(tiny)
    monkeypatch.setattr(image_folder, "_TINY_COUNTS", (3, 6, 4))
    assert len(TinyImageNet().read(tiny).test) == 4


def test_tiny_imagenet_says_what_is_missing(tiny):
    (tiny / "words.txt").unlink()
    with pytest.raises(FileError, match=r"tiny_imagenet needs wnids\.txt.*unpacked.*missing: words\.txt.*--download"):
        TinyImageNet().read(tiny)


def test_tiny_imagenet_refuses_annotations_that_lead_elsewhere(tiny):
    for line in ("../../secret.JPEG\tn001", "val_0.JPEG\tn999", "val_0.JPEG"):
        (tiny / "val" / "val_annotations.txt").write_text(f"val_0.JPEG\tn001\n{line}\n")
        with pytest.raises(FileError, match=r"a picture and a class of wnids\.txt.*line 2 says"):
            TinyImageNet().read(tiny, checked=False)


def test_tiny_imagenet_names_pictures_that_cannot_be_read_or_have_another_size(tiny):
    path = tiny / "train" / "n001" / "images" / "n001_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(FileError, match=r"these are not: .*n001_0\.JPEG \("):
        TinyImageNet().read(tiny, checked=False)
    save(path, (0, 0, 0), size=(64, 63))
    with pytest.raises(FileError, match=r"n001_0\.JPEG \(it must have 64 x 64 pixels; got 64 x 63\)"):
        TinyImageNet().read(tiny, checked=False)
    for held in (tiny / "train" / "n001" / "images").iterdir():
        held.unlink()
    with pytest.raises(FileError, match=r"n001.images must hold pictures"):
        TinyImageNet().read(tiny, checked=False)


@pytest.fixture
def own(tmp_path):
    for part in ("train", "test"):
        save(tmp_path / part / "cat" / "a.png", (255, 0, 0), size=(40, 20))
        save(tmp_path / part / "cat" / "b.JPG", (255, 0, 0), size=(20, 40))
        save(tmp_path / part / "dog" / "c.gif", 9, size=(33, 33), mode="L")
        (tmp_path / part / "dog" / "notes.txt").write_text("no picture")
    return tmp_path


def test_an_image_folder_is_read_at_one_size(own):
    dataset = ImageFolder(size=16).read(own)
    assert dataset.class_names == ("cat", "dog")
    assert tuple(dataset.training.inputs.shape) == (3, 3, 16, 16)
    assert dataset.training.labels.tolist() == dataset.test.labels.tolist() == [0, 0, 1]
    assert dataset.training.inputs[0, :, 8, 8].tolist() == [255, 0, 0]
    assert dataset.training.inputs[2].unique().tolist() == [9]
    assert dataset.validation is None


def test_a_large_image_folder_has_the_rows_of_an_image_folder_and_reads_none_of_them(own):
    expected = ImageFolder(size=16).read(own)
    dataset = LargeImageFolder(size=16, crop=1).read(own)
    assert dataset.class_names == expected.class_names
    assert dataset.are_files
    assert not expected.are_files
    for part, other in ((dataset.training, expected.training), (dataset.test, expected.test)):
        assert isinstance(part.inputs, Pictures)
        assert part.inputs.shape == other.inputs.shape
        assert part.inputs.dtype == other.inputs.dtype
        assert torch.equal(part.labels, other.labels)
        assert torch.equal(part.tensor, other.tensor)
    chosen = dataset.training[torch.tensor([2, 0])][:1]
    assert (len(chosen), chosen.labels.tolist(), chosen.inputs.path(0).name) == (1, [1], "c.gif")
    assert dataset.augmentation == "resized-crop-flip"
    (own / "train" / "cat" / "a.png").write_bytes(b"")  # it is only read when it is needed
    LargeImageFolder().read(own)


def test_pictures_are_known_by_their_names_their_order_and_how_they_are_read(own):
    pictures = LargeImageFolder(size=16).read(own).training.inputs
    assert pictures.digest() == LargeImageFolder(size=16).read(own).training.inputs.digest()
    others = [LargeImageFolder(size=17).read(own), LargeImageFolder(size=16, crop=0.5).read(own)]
    rows = [pictures[:2], pictures[torch.tensor([1, 0, 2])], *(other.training.inputs for other in others)]
    assert len({pictures.digest(), *(each.digest() for each in rows)}) == 5


def test_a_share_of_the_middle_must_be_one():
    with pytest.raises(InputError, match=r"crop must be between 0\.01 and 1; got 2"):
        LargeImageFolder(crop=2)


@pytest.mark.parametrize("inside", [False, True])
def test_imagenet_is_read_where_it_lies_with_all_its_pictures_unless_unchecked(tmp_path, inside, monkeypatch):
    root = tmp_path / "imagenet" if inside else tmp_path
    for wnid in ("n02", "n01"):
        save(root / "train" / wnid / "1.JPEG", (9, 9, 9))
        save(root / "val" / wnid / "2.JPEG", (9, 9, 9))
    with pytest.raises(FileError, match=r"must hold 1,000 classes, 1,281,167 training and 50,000 .*; got 2, 2 and 2"):
        ImageNet().read(tmp_path)
    dataset = ImageNet().read(tmp_path, checked=False)
    assert (dataset.name, dataset.class_names) == ("imagenet", ("n01", "n02"))
    assert tuple(dataset.test.inputs.shape) == (2, 3, 224, 224)
    monkeypatch.setattr(image_folder, "_IMAGENET_COUNTS", (2, 2, 2))
    assert len(ImageNet().read(tmp_path).training) == 2


def test_imagenet_without_a_part_says_which(tmp_path):
    save(tmp_path / "train" / "n01" / "1.JPEG", (9, 9, 9))
    with pytest.raises(FileError, match=r"imagenet needs train/<wnid> and val/<wnid>.*; missing: val\."):
        ImageNet().read(tmp_path)


def test_folders_of_class_numbers_stay_in_their_files(tmp_path):
    for number in (0, 2, 10):
        save(tmp_path / str(number) / "a.png", (number, 0, 0))
    samples = pictures_by_class(tmp_path, size=8, crop=0.9, class_names=[f"n{at}" for at in range(11)])
    assert samples.labels.tolist() == [0, 2, 10]
    assert samples.tensor[:, 0, 4, 4].tolist() == [0, 2, 10]


def test_the_middle_of_a_long_picture_is_kept(own):
    stripes = np.zeros((10, 30, 3), dtype=np.uint8)
    stripes[:, 10:20] = 200
    Image.fromarray(stripes).save(own / "train" / "cat" / "a.png")
    assert ImageFolder(size=10).read(own).training.inputs[0].unique().tolist() == [200]


def test_a_picture_that_was_taken_sideways_is_put_upright(own):
    top = np.zeros((10, 10, 3), dtype=np.uint8)
    top[:5] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the top of the scene lies at the right of what is stored
    Image.fromarray(top).transpose(Image.Transpose.ROTATE_90).save(own / "train" / "cat" / "a.png", exif=exif)
    image = ImageFolder(size=10).read(own).training.inputs[0]
    assert torch.equal(image, torch.from_numpy(top).permute(2, 0, 1))


def test_val_is_the_test_part_if_alone_and_the_validation_part_beside_test(own):
    for name in "ab":
        save(own / "val" / "cat" / f"{name}.png", (1, 2, 3))
    save(own / "val" / "dog" / "c.png", (1, 2, 3))
    save(own / "val" / "dog" / "d.png", (1, 2, 3))
    dataset = ImageFolder(size=8).read(own)
    assert (len(dataset.validation), len(dataset.test)) == (4, 3)
    (own / "test").rename(own / "elsewhere")
    dataset = ImageFolder(size=8).read(own)
    assert dataset.validation is None
    assert len(dataset.test) == 4


def test_folders_of_another_layout_are_refused(own):
    with pytest.raises(FileError, match=r"needs folders train/<class>/.*found cat, dog"):
        ImageFolder().read(own / "train")
    with pytest.raises(FileError, match="it is no folder"):
        ImageFolder().read(own / "nowhere")
    (own / "test" / "bird").mkdir()
    with pytest.raises(FileError, match="same class folders as train; 'bird' is only in test"):
        ImageFolder().read(own)
    (own / "train" / "bird").mkdir()
    with pytest.raises(FileError, match=r"bird must hold pictures .*there are none"):
        ImageFolder().read(own)


def test_a_part_without_classes_is_refused(tmp_path):
    for part in ("train", "test"):
        save(tmp_path / part / "a.png", (0, 0, 0))
    with pytest.raises(FileError, match=r"train must hold a folder for every class; found a\.png"):
        ImageFolder().read(tmp_path)


def test_unreadable_pictures_are_named_and_the_rest_counted(own):
    for number in range(5):
        (own / "train" / "dog" / f"z{number}.png").write_bytes(b"no picture")
    with pytest.raises(FileError, match=r"these are not: .*z0\.png .*z1\.png .*z2\.png .* and 2 more"):
        ImageFolder().read(own)


def test_the_size_must_be_a_size():
    with pytest.raises(InputError, match="size must be at least 1; got 0"):
        ImageFolder(size=0)


class TestClassFolders:
    def test_folders_are_classes_by_name_and_need_not_be_all(self, tmp_path):
        for name, colour in {"cow": (9, 0, 0), "ant": (5, 0, 0)}.items():
            save(tmp_path / name / "a.png", colour, size=(30, 20))
        samples = read_shifted(tmp_path, class_names=("cow", "bee", "ant"), size=8)
        assert (samples.inputs.shape, samples.labels.tolist()) == ((2, 3, 8, 8), [2, 0])
        assert samples.inputs[:, 0, 4, 4].tolist() == [5, 9]

    def test_numbers_are_those_of_the_classes_and_not_an_order_of_words(self, tmp_path):
        for number in (0, 2, 10):
            save(tmp_path / str(number) / "a.png", (number, 0, 0))
        samples = read_shifted(tmp_path, class_names=[f"n{number:04}" for number in range(11)], n_classes=11, size=8)
        assert samples.labels.tolist() == samples.inputs[:, 0, 4, 4].tolist() == [0, 2, 10]
        # The network's own classes have such names, in the order of words.
        samples = read_shifted(tmp_path, class_names=("0", "1", "10", "2"), size=8)
        assert sorted(zip(samples.labels.tolist(), samples.inputs[:, 0, 4, 4].tolist(), strict=True)) == [
            (0, 0),
            (2, 10),
            (3, 2),
        ]

    @pytest.mark.parametrize("name", ["yak", "3", "²"])
    def test_a_folder_that_is_no_class_is_refused(self, tmp_path, name):
        save(tmp_path / "ant" / "a.png", 0)
        save(tmp_path / name / "a.png", 0)
        with pytest.raises(
            FileError, match=f"named as the classes of the network \\(ant, bee, …\\).*'{name}' is neither"
        ):
            read_shifted(tmp_path, class_names=("ant", "bee"), n_classes=2, size=8)

    def test_the_size_must_be_given(self, tmp_path):
        save(tmp_path / "ant" / "a.png", 0)
        with pytest.raises(InputError, match="size must be that of the network's images"):
            read_shifted(tmp_path, class_names=("ant", "bee"))


class TestPictureDataset:
    def test_an_image_is_the_middle_of_its_picture_as_imagenet_is_normalised(self, tmp_path):
        save(tmp_path / "b" / "x.png", (255, 0, 51), size=(80, 64))
        save(tmp_path / "a" / "x.png", (0, 0, 0))
        pictures = PictureDataset(tmp_path, size=8)
        assert (len(pictures), pictures.class_names, pictures.labels) == (2, ("a", "b"), [0, 1])
        image, label = pictures[1]
        assert (image.shape, image.dtype, label) == ((3, 8, 8), torch.float32, 1)
        expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]
        assert image[:, 4, 4].tolist() == pytest.approx(expected, abs=1e-5)

    def test_the_crop_is_a_share_of_the_largest_square(self, tmp_path):
        ramp = np.tile(np.arange(80, dtype=np.uint8)[:, None, None], (1, 100, 3))
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        for folder in "ab":
            Image.fromarray(ramp).save(tmp_path / folder / "x.png")
        pictures = PictureDataset(tmp_path, size=40, crop=0.5, mean=(0, 0, 0), std=(1 / 255,) * 3)
        rows = pictures[0][0][0, :, 20]
        assert (float(rows[0]), float(rows[-1])) == pytest.approx((20, 59), abs=1)  # the middle 40 of 80 rows

    def test_pictures_are_read_when_they_are_asked_for(self, tmp_path):
        for name in "ab":
            save(tmp_path / name / "x.png", 0)
        pictures = PictureDataset(tmp_path, size=8)
        (tmp_path / "b" / "x.png").write_bytes(b"nothing")
        pictures[0]
        with pytest.raises(FileError, match=r"these are not: .*x\.png \(cannot identify.*\)\. Remove"):
            pictures[1]

    def test_a_network_is_calibrated_on_them(self, tmp_path):
        for number in range(12):
            save(tmp_path / "ab"[number % 2] / f"{number}.png", (20 * number, 90 * (number % 2), 0))
        pictures = PictureDataset(tmp_path, size=8)
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
        predictions = NetworkPredictions(network, pictures).at(torch.zeros(3, 8, 8))
        assert predictions.labels.tolist() == [0] * 6 + [1] * 6

    @pytest.mark.parametrize("options", [{"size": 0}, {"crop": 0.0}, {"crop": 1.5}, {"std": (1, 0, 1)}])
    def test_options_out_of_range_are_refused(self, tmp_path, options):
        with pytest.raises(InputError, match=f"{next(iter(options))} must be"):
            PictureDataset(tmp_path, **options)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(FileError, match="must hold a folder for every class; it is no folder"):
            PictureDataset(tmp_path / "none")

    @pytest.mark.parametrize("pixels", [np.uint16, np.int32, np.float32])
    def test_pictures_of_more_than_8_bits_are_refused_instead_of_turning_white(self, tmp_path, pixels):
        (tmp_path / "a").mkdir()
        Image.fromarray(np.linspace(0, 65535, 64).reshape(8, 8).astype(pixels)).save(tmp_path / "a" / "1.tif")
        with pytest.raises(FileError, match=r"must have 8 bits a channel; got .*save it in 8"):
            PictureDataset(tmp_path)[0]

    def test_hidden_files_beside_pictures_are_no_pictures(self, tmp_path):
        save(tmp_path / "a" / "1.png", 9, mode="L")
        (tmp_path / "a" / "._1.png").write_bytes(b"made by a file manager")
        assert len(PictureDataset(tmp_path)) == 1
