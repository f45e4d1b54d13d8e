import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.data.formats.pair_files import Fault, Loaded, Pair, find_pairs, load_pair, with_channels


def noise(height, width, seed=0, channels=3, kind=np.uint8):
    shape = (height, width, channels)[: 2 if channels == 1 else 3]
    return np.random.default_rng(seed).integers(0, np.iinfo(kind).max + 1, shape, dtype=kind)


def write(path, blue_first):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), blue_first)


def test_one_folder(tmp_path):
    for name in ("b-1.png", "b.JPG", "10.jpeg", "9.webp", "a.x.tif", "B.bmp", "c.TIFF"):
        (tmp_path / name).write_bytes(b"")
    for name in (".hidden.png", "notes.txt", "png", "x.png.bak"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    pairs, faults = find_pairs(tmp_path, tmp_path)
    assert [pair.name for pair in pairs] == ["10", "9", "B", "a.x", "b", "b-1", "c"]
    assert [pair.files for pair in pairs][:2] == [("10.jpeg",), ("9.webp",)]
    assert faults == []


def test_two_folders(tmp_path):
    for name in ("a/2.png", "a/1.jpg", "b/1.png", "b/2.PNG", "aside.png", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    expected = [Pair("1", ("a/1.jpg", "b/1.png")), Pair("2", ("a/2.png", "b/2.PNG"))]
    assert find_pairs(tmp_path, tmp_path) == (expected, [])


def test_faults_of_names(tmp_path):
    for name in ("a/1.png", "a/1.jpg", "b/1.png", "a/2.png", "b/3.png", "a/4.png", "b/4.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    pairs, faults = find_pairs(tmp_path, tmp_path)
    assert [pair.name for pair in pairs] == ["4"]
    assert faults == [
        Fault("a/1.jpg", "two files with one name", "a/1.jpg, a/1.png"),
        Fault("a/2.png", "missing partner", "no image '2' in b"),
        Fault("b/3.png", "missing partner", "no image '3' in a"),
    ]


def test_two_files_with_one_name_in_one_folder(tmp_path):
    for name in ("1.png", "1.jpg", "2.png"):
        (tmp_path / name).write_bytes(b"")
    pairs, faults = find_pairs(tmp_path, tmp_path)
    assert [pair.name for pair in pairs] == ["2"]
    assert faults == [Fault("1.jpg", "two files with one name", "1.jpg, 1.png")]


def test_links_stay_in_the_root(tmp_path):
    root, folder, outside = tmp_path / "root", tmp_path / "root" / "train", tmp_path / "outside"
    for path in (folder / "real.png", root / "other" / "inner.png", outside / "secret.png"):
        write(path, noise(4, 8))
    (folder / "inner.png").symlink_to("../other/inner.png")
    (folder / "leak.png").symlink_to(outside / "secret.png")
    (folder / "circle.png").symlink_to("circle.png")
    pairs, faults = find_pairs(folder, root)
    assert [pair.name for pair in pairs] == ["circle", "inner", "real"]
    leak = ("leak.png", "path leaves the data root", f"leak.png is a link to {outside / 'secret.png'}")
    assert faults == [leak]
    assert isinstance(load_pair(folder, pairs[1]), Loaded)
    circle = load_pair(folder, pairs[0])
    assert isinstance(circle, Fault)
    assert circle.reason == "image file unreadable"
    # the same by a link to a folder
    (root / "val").symlink_to(outside)
    assert find_pairs(root / "val", root) == ([], [Fault(".", "path leaves the data root", str(outside))])
    (root / "two").mkdir()
    (root / "two" / "a").symlink_to(folder)
    (root / "two" / "b").symlink_to(outside)
    assert find_pairs(root / "two", root) == ([], [Fault("b", "path leaves the data root", str(outside))])


def cut(tmp_path):
    content = cv2.imencode(".jpg", noise(32, 64))[1].tobytes()
    (tmp_path / "1.jpg").write_bytes(content[:-200])


FAULTS = {
    "odd": (lambda p: write(p / "1.png", noise(8, 13)), ["1.png"], "odd width", "13 x 8"),
    "cut": (cut, ["1.jpg"], "image file unreadable", "damaged"),
    "empty": (lambda p: (p / "1.png").touch(), ["1.png"], "image file unreadable", "damaged"),
    "text": (lambda p: (p / "1.png").write_text("no image"), ["1.png"], "image file unreadable", "damaged"),
    "gone": (lambda p: None, ["1.png"], "image file unreadable", "no such file"),
    "sizes": (
        lambda p: (write(p / "a/1.png", noise(8, 13)), write(p / "b/1.png", noise(8, 12))),
        ["a/1.png", "b/1.png"],
        "A and B differ in size",
        "13 x 8 and 12 x 8",
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_of_files(kind, tmp_path):
    make, files, reason, detail = FAULTS[kind]
    make(tmp_path)
    fault = load_pair(tmp_path, Pair("1", tuple(files)))
    assert isinstance(fault, Fault)
    assert fault[:2] == (files[0], reason)
    assert detail in fault.detail


def decoded(tmp_path, image, name="1.png"):
    write(tmp_path / name, image)
    loaded = load_pair(tmp_path, Pair("1", (name,)))
    assert isinstance(loaded, Loaded)
    return np.hstack([loaded.a, loaded.b])


def test_grey_files_have_three_equal_channels(tmp_path):
    pixels = noise(6, 10, channels=1)
    np.testing.assert_array_equal(decoded(tmp_path, pixels), np.repeat(pixels[..., None], 3, axis=2))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bits_are_scaled(suffix, tmp_path):
    pixels = noise(6, 10, kind=np.uint16)
    found = decoded(tmp_path, pixels, f"1{suffix}")
    assert np.abs(found - pixels[..., ::-1] / 257).max() <= 1  # 65535 becomes 255


def test_transparency_is_ignored(tmp_path):
    pixels = noise(6, 10, channels=4)
    np.testing.assert_array_equal(decoded(tmp_path, pixels), pixels[..., 2::-1])


def test_orientation_is_ignored(tmp_path):
    content = cv2.imencode(".jpg", noise(16, 32))[1].tobytes()
    # an APP1 segment: big-endian TIFF with one entry, orientation (0x0112) 6, a quarter turn
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    (tmp_path / "1.jpg").write_bytes(content[:2] + segment + content[2:])
    assert cv2.imread(str(tmp_path / "1.jpg")).shape == (32, 16, 3)  # as it is turned by default
    loaded = load_pair(tmp_path, Pair("1", ("1.jpg",)))
    assert isinstance(loaded, Loaded)
    assert loaded.a.shape == (16, 16, 3)


def test_grey_of_a_grey_file_is_the_file():
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    np.testing.assert_array_equal(with_channels(np.repeat(levels, 3, axis=2), 1), levels)


def test_real_facades():
    folder = Path(__file__).parents[3] / "shared/data/facades_real"
    if not folder.is_dir():
        pytest.skip(f"no sample data at {folder}")
    for split, count in {"train": 160, "val": 40}.items():
        pairs, faults = find_pairs(folder / split, folder)
        assert ([pair.name for pair in pairs], faults) == (sorted(str(n) for n in range(1, count + 1)), [])
        assert len(os.listdir(folder / split)) == count
        loaded = load_pair(folder / split, pairs[0])
        assert isinstance(loaded, Loaded)
        assert loaded.a.shape == loaded.b.shape == (256, 256, 3)
        # B is the label map: mostly the wall's blue, while a photograph's channels are close to each other
        assert loaded.b[..., 2].mean() - loaded.b[..., 0].mean() > 50
        assert abs(loaded.a[..., 2].mean() - loaded.a[..., 0].mean()) < 50
