"""Published weights in safetensors, from a file or from the Hugging Face hub, checked by checksum, names and shapes."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from figura.base.errors import UserError
from figura.base.file_kinds import why_no_tensors
from figura.base.files import log_weights
from figura.base.files import sha256 as sha256_of

FILE = "model.safetensors"  # the file's name in a repository of the hub
UNCOUNTED = "num_batches_tracked"  # BatchNorm's counter; published files may lack it


@dataclass(frozen=True)
class WeightFile:
    """Published weights.

    Error messages start with `what` and end with `remedy`, which explains how to get the file. `repository` has the
    weights on the hub as `FILE`; it is empty if they are not on the hub.
    """

    what: str
    remedy: str
    repository: str = ""

    def locate(self, source: str, sha256: str | None = None) -> Path:
        """Return the file of `source`: its path, or `hub` to fetch it (from HF_ENDPOINT, if set).

        The file's checksum is compared with `sha256`, or else, for a file from the hub, with the hub's.

        Raises:
            UserError: the file does not exist, cannot be fetched, or has a wrong checksum.
        """
        path = self._fetch() if source == "hub" else Path(source)
        self._require(path)
        stated = path.resolve().name if source == "hub" else ""  # the hub's cache names large files by checksum
        expected = sha256 or (stated if re.fullmatch("[0-9a-f]{64}", stated) else None)
        if expected and (actual := sha256_of(path)) != expected.lower():
            place = path.resolve()  # in the hub's cache, `path` is a link
            raise UserError(
                f"{self.what}: {place} has SHA-256 {actual}, expected {expected}; delete it and fetch it again"
            )
        return path

    def read(
        self, path: Path, shapes: Mapping[str, tuple[int, ...]], may_hold: Callable[[str], bool] = lambda _: True
    ) -> dict[str, Tensor]:
        """Return the tensors named in `shapes`, float32, on the CPU; logs their file.

        `may_hold` returns whether the file may contain another name; such tensors are not read.

        Raises:
            UserError: the file is not in safetensors format, a tensor is missing or has another shape, or the file has
                a tensor rejected by `may_hold`.
        """
        self._require(path)
        try:
            with safe_open(path, framework="pt") as file:
                present = set(file.keys())
                for name, shape in shapes.items():
                    if name in present and (actual := tuple(file.get_slice(name).get_shape())) != shape:
                        raise self._error(f"{path}: {name} has shape {actual}, expected {shape}")
                if missing := [name for name in shapes if name not in present]:
                    raise self._error(f"{path} has no tensor {_some(missing)}")
                if foreign := sorted(name for name in present - shapes.keys() if not may_hold(name)):
                    raise self._error(f"{path} holds {_some(foreign)}, of another network")
                log_weights(self.what, path)
                return {name: file.get_tensor(name).float() for name in shapes}
        except SafetensorError as error:
            raise self._error(f"{path} is no safetensors file ({why_no_tensors(path, error)})") from error

    def _fetch(self) -> Path:
        from huggingface_hub import hf_hub_download  # slow import, rarely needed

        endpoint = os.environ.get("HF_ENDPOINT")
        try:
            return Path(hf_hub_download(self.repository, FILE, endpoint=endpoint))
        except Exception as error:  # those of an HTTP client among them
            where = endpoint or "the hub"
            raise self._error(f"{self.repository} could not be fetched from {where} ({error})") from error

    def _require(self, path: Path) -> None:
        if not path.is_file():
            raise self._error(f"no file {path}")

    def _error(self, message: str) -> UserError:
        return UserError(f"{self.what}: {message}; {self.remedy}")


def _some(names: list[str]) -> str:
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
