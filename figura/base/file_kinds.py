"""Files that figura does not read, by their first bytes: what each is, and the way out."""

import re
from pathlib import Path
from typing import NamedTuple

HEAD = 160  # the number of first bytes of a file that tell its kind


class _Kind(NamedTuple):
    what: str
    advice: str
    bytes: str
    """A regular expression of the first bytes."""
    suffixes: tuple[str, ...] = ()
    """Those that name the kind where the bytes do not."""


_UNPACK = "unpack it, and name the file in it"
_CONVERT = "convert it to PNG or JPEG"
_TO_JSON = "export annotations as JSON (COCO)"
_TO_TENSORS = f"{_TO_JSON}, weights as safetensors"
_TO_PYTORCH = "figura needs the weights of a network that PyTorch builds; export them as safetensors"

_UNREADABLE = (
    _Kind("a Git LFS pointer instead of the file", "run `git lfs pull` in its repository",
          r"version https://(git-lfs|hawser)"),
    _Kind("a git-annex pointer instead of the file", "run `git annex get` in its repository", r"/annex/objects/"),
    _Kind("DVC's pointer instead of the data", "run `dvc pull`, and name the data without .dvc",
          r"(md5: \w+\n|frozen: \w+\n)*(outs|deps):\n- "),
    _Kind("a web page instead of the file", "download the file itself; it may need a sign-in or another link",
          r"(?i:\s*<(!doctype html|html)\b)"),
    _Kind("HDF5 (of DeepLabCut, SLEAP, Keras, MATLAB 7.3)", _TO_TENSORS, r"\x89HDF\r\n\x1a\n|MATLAB 7\.3",
          (".h5", ".hdf5", ".slp")),
    _Kind("a MATLAB file", f"{_TO_JSON}; of MPII, use the lists of HRNet or MMPose (train.json, valid.json)",
          r"MATLAB 5\.0", (".mat",)),
    _Kind("Parquet", _TO_JSON, r"PAR1", (".parquet",)),
    _Kind("Arrow", _TO_JSON, r"ARROW1|FEA1|\xff\xff\xff\xff.\x00\x00\x00\x10\x00\x00\x00", (".arrow", ".feather")),
    _Kind("an SQLite database", _TO_JSON, r"SQLite format 3\x00", (".sqlite",)),
    _Kind("TFRecord", _TO_JSON, r".{3}\x00{5}(?!\{).{4}\n", (".tfrecord", ".tfrecords")),
    _Kind("gzip", _UNPACK, r"\x1f\x8b", (".gz", ".tgz")),
    _Kind("xz", _UNPACK, r"\xfd7zXZ\x00", (".xz",)),
    _Kind("bzip2", _UNPACK, r"BZh[1-9]1AY", (".bz2",)),
    _Kind("Zstandard", _UNPACK, r"\x28\xb5\x2f\xfd", (".zst",)),
    _Kind("a 7z archive", _UNPACK, r"7z\xbc\xaf", (".7z",)),
    _Kind("a RAR archive", _UNPACK, r"Rar!\x1a\x07", (".rar",)),
    _Kind("UTF-16 text", "save it as UTF-8", r"\xff\xfe(?!\x00\x00)|\xfe\xff"),
    _Kind("ONNX", _TO_PYTORCH, r"\x08[\x01-\x1f][\x12\x1a\x22\x3a\x42](?!.{5}\{)", (".onnx",)),
    _Kind("TensorFlow Lite", _TO_PYTORCH, r".{4}TFL3", (".tflite",)),
    _Kind("GGUF", _TO_PYTORCH, r"GGUF", (".gguf",)),
    _Kind("a HEIC picture", _CONVERT, r".{4}ftyp(hei[cxms]|hev[cxms]|(mif1|msf1)(?!.{,100}avi[fs]))",
          (".heic", ".heif")),
    _Kind("a JPEG XL picture", _CONVERT, r"\xff\x0a|\x00\x00\x00\x0cJXL ", (".jxl",)),
    _Kind("a JPEG 2000 picture", _CONVERT, r"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51", (".jp2", ".j2k")),
    _Kind("a raw camera picture", f"develop it first, and {_CONVERT}", r"II\*\x00.{4}CR|.{4}ftypcrx |FUJIFILMCCD",
          (".arw", ".cr2", ".cr3", ".dng", ".nef", ".raf")),
    _Kind("OpenEXR", _CONVERT, r"\x76\x2f\x31\x01", (".exr",)),
    _Kind("a Photoshop file", _CONVERT, r"8BPS", (".psd",)),
    _Kind("DICOM", _CONVERT, r".{128}DICM", (".dcm",)),
    _Kind("a PDF", _CONVERT, r"%PDF-", (".pdf",)),
)  # fmt: skip
"""Kinds that nothing in figura reads: opening one is an error."""
_ANY_UNREADABLE = re.compile("|".join(kind.bytes for kind in _UNREADABLE), re.DOTALL)

_ELSEWHERE = (
    _Kind("a pickle, which can run programs", f"of pickles, figura reads PyTorch's weights alone; {_TO_JSON}",
          r"\x80[\x02-\x05]", (".pkl", ".pickle")),
    _Kind("NumPy arrays", _TO_TENSORS, r"\x93NUMPY|PK\x03\x04.{26,120}\.npy", (".npz", ".npy")),
    _Kind("a ZIP archive or PyTorch's weights", "unpack an archive; of weights, see `figura import --help`",
          r"PK\x03\x04", (".zip", ".pt", ".pth", ".ckpt")),
    _Kind("safetensors", "that is a file of weights", r".{5}\x00{3}\{", (".safetensors",)),
    _Kind("a picture", "", r"\x89PNG|\xff\xd8\xff|GIF8|BM.{4}\x00{4}|II\*\x00|MM\x00\*|RIFF.{4}WEBP|.{4}ftypavi[fs]"),
    _Kind("a video", "", r".{4}ftyp|\x1a\x45\xdf\xa3|RIFF.{4}AVI "),
)  # fmt: skip
"""Kinds that some of figura reads: named where a reader of another kind gets one."""


def unread_kind(head: bytes) -> str | None:
    """Return what a file with these first bytes is and what to do, if nothing in figura reads it."""
    return _named(_UNREADABLE, head) if _ANY_UNREADABLE.match(_text(head)) else None


def kind_of(head: bytes, path: Path) -> str | None:
    """Return what a file that could not be read is, by its first bytes or else its suffix, and what to do."""
    every = _UNREADABLE + _ELSEWHERE
    by_suffix = (_said(kind) for kind in every if path.suffix.lower() in kind.suffixes)
    return _named(every, head) or next(by_suffix, None)


def _named(kinds: tuple[_Kind, ...], head: bytes) -> str | None:
    return next((_said(kind) for kind in kinds if re.match(kind.bytes, _text(head), re.DOTALL)), None)


def _text(head: bytes) -> str:
    return head[:HEAD].decode("latin-1")  # one character a byte


def _said(kind: _Kind) -> str:
    return f"it is {kind.what}" + (f": {kind.advice}" if kind.advice else "")


def why_no_tensors(path: Path, error: Exception) -> str:
    """Return the kind of a file that safetensors refused with this error, or else the error."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return (None if head[8:9] == b"{" else kind_of(head, Path())) or str(error)
