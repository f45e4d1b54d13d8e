"""Shapes of OpenPifPaf's tensors by name, written a second time from its layers; shares nothing with `models`."""

FIELDS = {"cif": (17, 5), "caf": (19, 8), "caf25": (25, 8), "cifdet": (91, 6)}  # fields, components

SHUFFLE = {16: (4, 8, 4), 20: (5, 10, 5), 30: (8, 16, 6), 44: (12, 24, 8), "x5": (6, 13, 6)}  # units of stages 2, 3, 4
WIDTHS = {16: (24, 348, 696, 1392), "x5": (42, 640, 1280, 2560)}  # of those that are not like k30
RESNET = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Names:
    """Shapes by name, as OpenPifPaf's modules have them; 8.6 gives the names, 1.2 and 1.3 the layers."""

    def __init__(self):
        self.shapes = {}

    def layer(self, convolution, norm, outputs, inputs, size):
        """A convolution without bias and the BatchNorm behind it."""
        self.shapes[f"{convolution}.weight"] = (outputs, inputs, size, size)
        self.shapes |= {f"{norm}.{part}": (outputs,) for part in ("weight", "bias", *STATISTICS[:2])}
        self.shapes[f"{norm}.num_batches_tracked"] = ()

    def shufflenet(self, depth):
        widths = WIDTHS.get(depth, (32, 512, 1024, 2048))
        self.layer("base_net.input_block.0.0", "base_net.input_block.0.1", widths[0], 3, 3)
        for stage, units in enumerate(SHUFFLE[depth], start=2):
            inputs, outputs = widths[stage - 2], widths[stage - 1]
            half = outputs // 2
            for unit in range(units):
                one, two = (f"base_net.stage{stage}.{unit}.branch{branch}" for branch in (1, 2))
                if unit == 0:
                    self.layer(f"{one}.0", f"{one}.1", inputs, 1, 5)
                    self.layer(f"{one}.2", f"{one}.3", half, inputs, 1)
                self.layer(f"{two}.0", f"{two}.1", half, inputs if unit == 0 else half, 1)
                self.layer(f"{two}.3", f"{two}.4", half, 1, 5)
                self.layer(f"{two}.5", f"{two}.6", half, half, 1)
        self.layer("base_net.conv5.0", "base_net.conv5.1", widths[3], widths[3], 1)
        return widths[3]

    def residual(self, block, inputs, width, bottleneck, first_strides):
        outputs = 4 * width if bottleneck else width
        sizes = [(inputs, width, 3), (width, width, 3)]
        if bottleneck:
            sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        for index, (a, b, size) in enumerate(sizes, start=1):
            self.layer(f"{block}.conv{index}", f"{block}.bn{index}", b, a, size)
        if first_strides or inputs != outputs:
            self.layer(f"{block}.downsample.0", f"{block}.downsample.1", outputs, inputs, 1)
        return outputs

    def resnet(self, depth):
        self.layer("base_net.input_block.0", "base_net.input_block.1", 64, 3, 7)
        inputs = 64
        for stage, units in enumerate(RESNET[depth]):
            for unit in range(units):
                block = f"base_net.block{stage + 2}.{unit}"
                inputs = self.residual(block, inputs, 64 * 2**stage, depth >= 50, unit == 0 and stage > 0)
        return inputs

    def small(self):
        """Ours alone; the names are those of its layers."""
        self.layer("base_net.input_block.0", "base_net.input_block.1", 16, 3, 3)
        inputs = 16
        for stage, (width, units) in enumerate(((16, 2), (32, 2), (64, 2), (128, 3))):
            for unit in range(units):
                block = f"base_net.stages.{stage}.{unit}"
                inputs = self.residual(block, inputs, width, False, unit == 0 and stage > 0)
        return inputs

    def heads(self, channels, names):
        for index, name in enumerate(names):
            fields, components = FIELDS[name]
            self.shapes[f"head_nets.{index}.conv.weight"] = (fields * components * 4, channels, 1, 1)
            self.shapes[f"head_nets.{index}.conv.bias"] = (fields * components * 4,)


def shapes_of(backbone, heads=("cif", "caf")):
    names = Names()
    if backbone == "small":
        channels = names.small()
    elif backbone.startswith("resnet"):
        channels = names.resnet(int(backbone.removeprefix("resnet")))
    else:
        depth = backbone.removeprefix("shufflenetv2k")
        channels = names.shufflenet(int(depth) if depth.isdigit() else depth)
    names.heads(channels, heads)
    return names.shapes
