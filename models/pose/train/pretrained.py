"""ImageNet weights for ResNets, as safetensors: from a file, or from the hub (`timm/resnet50.tv_in1k` and the like)."""

from torch import nn

from models.images.networks.weight_files import FILE, WeightFile

UNCOUNTED = "num_batches_tracked"  # BatchNorm's counter; published files may lack it


def weight_file(depth: int) -> WeightFile:
    """The first ImageNet weights of torchvision, of this depth."""
    repository = f"timm/resnet{depth}.tv_in1k"
    remedy = (
        f"give `pretrained` the path of {FILE} from https://huggingface.co/{repository}, or 'hub' to fetch it, "
        "or leave it out to train from scratch"
    )
    return WeightFile("ResNet weights", remedy, repository)


def load_imagenet(network: nn.Module, depth: int, source: str, sha256: str | None = None) -> None:
    """Fill a ResNet's input block and stages in place from `source`, `hub` or the path of a safetensors file.

    The file names tensors as torchvision and timm do (conv1, bn1, layer1.0.conv1, ...); those of layers that the
    network lacks, such as the classifier, are ignored, and a second input convolution keeps what it has. For `sha256`
    see `WeightFile.locate`.

    Raises:
        UserError: no file, another checksum, a tensor missing or of another shape; says what to do.
    """
    published = weight_file(depth)
    path = published.locate(source, sha256)
    names = {name: published_name(name) for name in network.state_dict() if not name.endswith(UNCOUNTED)}
    shapes = {found: tuple(network.state_dict()[name].shape) for name, found in names.items() if found}
    weights = published.read(path, shapes)
    network.load_state_dict({name: weights[found] for name, found in names.items() if found}, strict=False)


def published_name(name: str) -> str | None:
    """What torchvision and timm call a tensor of ours: block2.0.conv1.weight -> layer1.0.conv1.weight; None if nothing."""
    first, _, rest = name.partition(".")
    if first == "input_block":
        place, _, rest = rest.partition(".")
        stem = {"0": "conv1", "1": "bn1"}.get(place)
        return stem and f"{stem}.{rest}"
    return f"layer{int(first.removeprefix('block')) - 1}.{rest}"
