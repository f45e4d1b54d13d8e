"""ImageNet weights for ResNets, as safetensors: from a file, or from the hub (`timm/resnet50.tv_in1k` and the like)."""

import hashlib
import os
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from models.engine.errors import UserError

FILE = "model.safetensors"
UNCOUNTED = "num_batches_tracked"  # BatchNorm's counter; published files may lack it


def repository(depth: int) -> str:
    """Where the hub has torchvision's first ImageNet weights of this depth."""
    return f"timm/resnet{depth}.tv_in1k"


def load_imagenet(network: nn.Module, depth: int, source: str, sha256: str | None = None) -> None:
    """Fill a ResNet's input block and stages in place from `source`, `hub` or the path of a safetensors file.

    The file names tensors as torchvision and timm do (conv1, bn1, layer1.0.conv1, ...); those of layers that the
    network lacks, such as the classifier, are ignored, and a second input convolution keeps what it has. A file is
    compared with `sha256` where given, one from the hub otherwise with the checksum that the hub states.

    Raises:
        UserError: no file, another checksum, a tensor missing or of another shape; says what to do.
    """
    remedy = (
        f"give `pretrained` the path of {FILE} from https://huggingface.co/{repository(depth)}, or 'hub' to fetch it, "
        "or leave it out to train from scratch"
    )
    path = _fetch(depth, remedy) if source == "hub" else Path(source)
    if not path.is_file():
        raise UserError(f"ResNet weights: no file {path}; {remedy}")
    stated = path.resolve().name if source == "hub" else ""  # the hub's cache names a large file by its checksum
    expected = sha256 or (stated if re.fullmatch("[0-9a-f]{64}", stated) else None)
    if expected:
        _verify(path, expected)
    network.load_state_dict(_read(path, network, remedy), strict=False)


def published_name(name: str) -> str | None:
    """What torchvision and timm call a tensor of ours: block2.0.conv1.weight -> layer1.0.conv1.weight; None if nothing."""
    first, _, rest = name.partition(".")
    if first == "input_block":
        place, _, rest = rest.partition(".")
        stem = {"0": "conv1", "1": "bn1"}.get(place)
        return stem and f"{stem}.{rest}"
    return f"layer{int(first.removeprefix('block')) - 1}.{rest}"


def _fetch(depth: int, remedy: str) -> Path:
    from huggingface_hub import hf_hub_download  # slow to import, and most runs do without

    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        return Path(hf_hub_download(repository(depth), FILE, endpoint=endpoint))
    except (OSError, ValueError) as error:
        where = endpoint or "the hub"
        raise UserError(
            f"ResNet weights: {repository(depth)} could not be fetched from {where} ({error}); {remedy}"
        ) from error


def _verify(path: Path, expected: str) -> None:
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != expected.lower():
        raise UserError(
            f"ResNet weights: {path} has SHA-256 {found}, expected {expected}; delete it and fetch it again"
        )


def _read(path: Path, network: nn.Module, remedy: str) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            present = set(file.keys())
            for name, tensor in network.state_dict().items():
                published = published_name(name)
                if published is None or published.endswith(UNCOUNTED):
                    continue
                if published not in present:
                    raise UserError(f"ResNet weights: {path} has no tensor {published!r}; {remedy}")
                weights[name] = file.get_tensor(published)
                if weights[name].shape != tensor.shape:
                    found, expected = tuple(weights[name].shape), tuple(tensor.shape)
                    raise UserError(
                        f"ResNet weights: {path}: {published} has shape {found}, expected {expected}; {remedy}"
                    )
    except SafetensorError as error:
        raise UserError(f"ResNet weights: {path} is no safetensors file ({error}); {remedy}") from error
    return weights
