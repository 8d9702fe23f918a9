"""Folders, lists and archives of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from poscod.backends.images import NORMALISATIONS, Images, open_images
from poscod.exceptions import InvalidInputError


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (6, 10, 12, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, pixels):
    for i, image in enumerate(pixels):
        place = tmp_path / "images" / ("cat" if i < 4 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{i}.png")
    (tmp_path / "images" / "cat" / "notes.md").write_text("no image")
    return tmp_path / "images"


def test_folder_list_and_archive_give_the_same(folder, tmp_path, pixels):
    mean, std = NORMALISATIONS["cifar10"]
    by_folder = open_images(folder, mean=mean, std=std)
    lines = [f"{'cat' if i < 4 else 'dog'}/{i}.png {int(i >= 4)}\n" for i in range(6)]
    (tmp_path / "test.txt").write_text("".join(lines) + "\n")
    by_list = open_images(tmp_path / "test.txt", root=folder, mean=mean, std=std)
    np.savez(tmp_path / "a.npz", images=pixels, labels=[0, 0, 0, 0, 1, 1])
    by_archive = open_images(tmp_path / "a.npz", mean=mean, std=std)
    expected = ((pixels / 255.0 - mean) / std).transpose(0, 3, 1, 2)
    for images in (by_folder, by_list, by_archive):
        batches = list(images.batches(4, workers=2))
        assert [len(x) for x, _ in batches] == [4, 2]
        np.testing.assert_allclose(np.concatenate([x for x, _ in batches]), expected, atol=1e-5)
        assert np.concatenate([y for _, y in batches]).tolist() == [0, 0, 0, 0, 1, 1]


def test_a_torch_loader_takes_them(pixels):
    images = Images(pixels, labels=np.arange(6))
    x, y = next(iter(torch.utils.data.DataLoader(images, batch_size=3)))
    assert x.shape == (3, 3, 10, 12)
    assert x.dtype == torch.float32
    assert y.tolist() == [0, 1, 2]
    assert images.take([4, 1]).labels.tolist() == [4, 1]
    assert len(images.take(slice(2, None))) == 4


def test_resize_and_crop(pixels):
    images = Images(pixels, resize=5, crop=4)
    assert images[0].shape == (3, 4, 4)
    # Shorter side 10 -> 5, longer 12 -> 6; then the middle.
    whole = np.asarray(Image.fromarray(pixels[0]).resize((6, 5), Image.Resampling.BILINEAR), dtype=np.float32) / 255
    np.testing.assert_allclose(images[0].transpose(1, 2, 0), whole[0:4, 1:5], atol=1e-6)
    with pytest.raises(InvalidInputError, match="crop must be at most the shorter side, got 20"):
        Images(pixels, crop=20)[0]


def test_flat_folder_has_no_labels(folder):
    images = open_images(folder / "cat")
    assert images.labels is None
    assert len(images) == 4
    assert next(iter(images.batches(2))).shape == (2, 3, 10, 12)


def test_lists(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("with space/1.png 2\nb.png -1\n")
    found = open_images(path)
    assert found.items[0] == tmp_path / "with space" / "1.png"
    assert found.labels.tolist() == [2, -1]
    path.write_text("a.png\nb.png\n")
    assert open_images(path).labels is None
    path.write_text("a.png 1\nb.png\n")
    with pytest.raises(InvalidInputError, match=r"all lines must end in a label.*got 'b.png'"):
        open_images(path)
    path.write_text("a.png 1\nb.png -7\n")
    with pytest.raises(InvalidInputError, match=r"a class index or -1, or none, got 'b.png -7'"):
        open_images(path)
    path.write_text("\n")
    with pytest.raises(InvalidInputError, match="empty list"):
        open_images(path)


def test_clear_errors(tmp_path, pixels):
    (tmp_path / "broken.png").write_bytes(b"not an image")
    with pytest.raises(InvalidInputError, match="could not be read as an image"):
        open_images(tmp_path)[0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="must hold images"):
        open_images(tmp_path / "empty")
    with pytest.raises(InvalidInputError, match="path must be a folder of images"):
        open_images(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", x=pixels)
    with pytest.raises(InvalidInputError, match="must hold an array 'images', got x"):
        open_images(tmp_path / "a.npz")
    with pytest.raises(InvalidInputError, match="uint8 pixels"):
        Images(pixels / 255.0)
    with pytest.raises(InvalidInputError, match="as many as images"):
        Images(pixels, [1])
    Image.fromarray(pixels[0]).save(tmp_path / "empty" / "a.png")
    Image.fromarray(pixels[0][:5]).save(tmp_path / "empty" / "b.png")
    with pytest.raises(InvalidInputError, match=r"one size.*set resize and crop"):
        list(open_images(tmp_path / "empty").batches())
    with pytest.raises(FileNotFoundError):
        Images([tmp_path / "gone.png"])[0]
