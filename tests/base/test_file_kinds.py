"""Files of other kinds than those that figura reads are called by their name, whichever reader gets them."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from safetensors.torch import save
from torch import nn

from figura.base.errors import UserError
from figura.base.file_kinds import unread_kind
from figura.base.files import read_json
from figura.base.raw_pictures import picture_facts, read_picture
from figura.base.yaml12 import read_yaml
from figura.engine.weights import load_weights
from figura.formats.coco import read_head
from figura.formats.exports import open_export

TEXT = json.dumps({"images": [], "annotations": [], "categories": []}).encode()


def written(write) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def database(folder: Path) -> bytes:
    connection = sqlite3.connect(folder / "a.db")
    connection.execute("create table a (b)")
    connection.commit()
    connection.close()
    return (folder / "a.db").read_bytes()


def archive(file):
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("annotations.json", TEXT)


def packed(file):
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        made.addfile(tarfile.TarInfo("annotations.json"))


BOX = b"\0\0\0\x18ftyp"
UNREAD = {
    "it is a Git LFS pointer instead of the file: run `git lfs pull`": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    ),
    "it is a git-annex pointer": (b"/annex/objects/MD5E-s9--d8e8fca2dc0f896fd7cb4cb0031ba249.json\n",),
    "it is DVC's pointer instead of the data: run `dvc pull`": (
        b"outs:\n- md5: d8e8fca2dc0f896fd7cb4cb0031ba249.dir\n  size: 9\n  path: mine\n",
        b"md5: d8e8fca2dc0f896fd7cb4cb0031ba249\nfrozen: true\ndeps:\n- path: x\n",
    ),
    "it is a web page instead of the file: download": (b"<!DOCTYPE html><html><body>Sign in", b"\n <html lang='en'>"),
    "it is HDF5 (of DeepLabCut, SLEAP, Keras, MATLAB 7.3): export annotations as JSON": (
        b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0",
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon May  4 2026",
    ),
    "it is a MATLAB file": (lambda _: written(lambda file: scipy.io.savemat(file, {"a": np.arange(3)})),),
    "it is Parquet": (b"PAR1\x15\x04",),
    "it is an SQLite database": (database,),
    "it is TFRecord": (b"\x2c\1\0\0\0\0\0\0\x8f\x41\xd2\x07\x0a\xa9\x02\x0a",),
    "it is gzip: unpack it": (gzip.compress(TEXT), written(packed)),
    "it is xz: unpack it": (lzma.compress(TEXT),),
    "it is bzip2: unpack it": (bz2.compress(TEXT),),
    "it is UTF-16 text: save it as UTF-8": (TEXT.decode().encode("utf-16"),),
    "it is ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x052.4.0:\xc2\x01", b"\x08\x0a:\xa4\x1a\x0a\x12"),
    "it is a HEIC picture: convert it to PNG or JPEG": (
        BOX + b"heic\0\0\0\0mif1heic",
        BOX + b"mif1\0\0\0\0mif1heic",
        BOX + b"hevc\0\0\0\0",
    ),
    "it is a JPEG XL picture": (b"\xff\x0a\xfa\x1f", b"\0\0\0\x0cJXL \r\n\x87\n"),
    "it is a raw camera picture": (b"II*\0\x10\0\0\0CR\2\0", BOX + b"crx \0\0\0\1"),
    "it is DICOM": (bytes(128) + b"DICM\2\0",),
}
READ_ELSEWHERE = {
    "it is a pickle, which can run programs": (pickle.dumps({"a": [1.5] * 99}),),
    "it is NumPy arrays": (written(lambda file: np.savez(file, a=np.arange(3))), b"\x93NUMPY\1\0v\0"),
    "it is a ZIP archive or PyTorch's weights": (
        written(archive), written(lambda file: torch.save({"a": torch.ones(2)}, file)),
    ),
    "it is safetensors": (save({"a": torch.ones(2)}),),
    "it is a picture": (
        written(lambda file: Image.new("RGB", (4, 3)).save(file, "PNG")),
        written(lambda file: Image.new("RGB", (4, 3)).save(file, "JPEG")),
        written(lambda file: Image.new("RGB", (4, 3)).save(file, "WEBP")),
    ),
}  # fmt: skip
READERS = {
    "JSON": lambda path: read_json(path, "advice"),
    "COCO": read_head,
    "annotations": lambda path: open_export(path, "key"),
    "picture": read_picture,
    "header": picture_facts,
    "weights": lambda path: load_weights(nn.Linear(1, 1), path),
    "recipe": read_yaml,
}
OWN = [("it is a picture", "picture"), ("it is a picture", "header"), ("it is safetensors", "weights")]


def cases(kinds, readers):
    return [(told, one, reader) for told, several in kinds.items() for one in several for reader in readers]


@pytest.mark.parametrize(
    ("told", "content", "reader"),
    [
        *cases(UNREAD, READERS),
        *(case for case in cases(READ_ELSEWHERE, READERS) if (case[0], case[2]) not in OWN),
    ],
    ids=lambda value: "content" if isinstance(value, bytes) else None,  # some has the time in it
)  # fmt: skip
def test_a_file_of_another_kind_is_named(told, content, reader, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content(tmp_path) if callable(content) else content)
    with pytest.raises(UserError) as raised:
        READERS[reader](path)
    assert str(path) in str(raised.value)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        TEXT,
        b"train:\n  steps: 3\n",
        b"stages:\n  train:\n    outs:\n    - runs\n",
        b"version: 1\n",
        b"<annotation><folder>x</folder>",
        save({f"{number:09}": torch.ones(1) for number in range(20_000)}),
        b"\x08\x12\x12\0\0\0\0\0{",
        written(lambda file: Image.new("RGB", (64, 64)).save(file, "AVIF")),
        written(lambda file: Image.new("RGB", (4, 3)).save(file, "TIFF")),
        b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf",
        b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41",
        written(lambda file: torch.save({"a": torch.ones(2)}, file, _use_new_zipfile_serialization=False)),
    ],
)
def test_what_some_reader_reads_is_not_refused(content):
    assert unread_kind(content) is None


def test_a_name_tells_the_kind_where_the_bytes_do_not(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(b"nothing known")
    with pytest.raises(UserError, match=r"IMG_1\.HEIC: no readable picture: it is a HEIC picture: convert it to PNG"):
        read_picture(tmp_path / "IMG_1.HEIC")
