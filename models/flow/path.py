"""Injectors of flow matching: the time, the point and the velocity to learn, conditions left out, pictures drawn."""

from typing import Literal

import torch
from torch import Tensor

from figura.interfaces import Injector, Networks, Operation, State

from ..images.argument_types import Count, Positive, Share


class Times(Operation):
    """Adds times between 0 and 1 from a logit-normal distribution: `sigmoid(location + scale n)`, n from N(0, 1).

    Esser et al., ICML 2024, section 3.1: more of them in the middle, where the flow is hardest to learn.

    Args:
        output: name of the times, (N,).
        like: name that gives N, the device and the dtype.
        location: of the distribution; above 0 nearer to the pictures, at 1.
        scale: of the distribution.
    """

    def __init__(self, output: str, like: str, location: float = 0.0, scale: Positive = 1.0) -> None:
        super().__init__([like], [output])
        self.location, self.scale = location, scale

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        (like,) = tensors
        drawn = torch.randn(len(like), dtype=like.dtype, device=like.device)
        return [torch.sigmoid(self.location + self.scale * drawn)]


class Path(Operation):
    """Adds the point at time t on the line from noise to a picture, and its velocity, which the network learns.

    `point = t picture + (1 - t) noise`, `velocity = picture - noise` (a rectified flow: Liu et al., ICLR 2023,
    equation 1; Lipman et al., ICLR 2023, equation 23 with sigma 0).

    Args:
        picture: name of the pictures, (N, ...), reached at time 1.
        noise: name of the noise, of the same shape, at time 0.
        time: name of the times, (N,).
        point: name of the points.
        velocity: name of the velocities.
    """

    def __init__(self, picture: str, noise: str, time: str, point: str, velocity: str) -> None:
        super().__init__([picture, noise, time], [point, velocity])

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        picture, noise, time = tensors
        if picture.shape != noise.shape:
            raise ValueError("equal shapes of picture and noise are needed")
        t = time.view(-1, *(1,) * (picture.ndim - 1))
        return [t * picture + (1 - t) * noise, picture - noise]


class LeaveOut(Operation):
    """Replaces whole examples by zeros at random, so that a network also learns to do without this condition.

    Args:
        names: name read, (N, ...) -> name added; an example is left out of all names or of none.
        chance: of each example.
    """

    def __init__(self, names: dict[str, str], chance: Share) -> None:
        super().__init__(list(names), list(names.values()))
        self.chance = chance

    def compute(self, tensors: list[Tensor], step: int) -> list[Tensor]:
        kept = torch.rand(len(tensors[0]), device=tensors[0].device) >= self.chance
        return [tensor * kept.view(-1, *(1,) * (tensor.ndim - 1)) for tensor in tensors]


class Sample(Injector):
    """Draws pictures: follows the network's velocity from noise at time 0 to a picture at time 1, in equal steps.

    Euler's method calls the network once a step, Heun's twice (the trapezoid rule). With a `guidance` g other than 1,
    the velocity is `without + g (with - without)` (classifier-free guidance: Ho and Salimans, 2021), which calls the
    network once with zeros in place of the conditions in `left_out`; such a network was trained with `LeaveOut`.

    Args:
        network: name of an entry of `networks`, whose forward takes `point` and `time` and returns `velocity`.
        noise: name of the noise, distributed as in training.
        inputs: further parameter of the network's forward -> name in the state.
        output: name of the pictures, clipped to [-1, 1].
        steps: number of steps.
        method: euler or heun.
        guidance: 1 follows the conditions as in training, above 1 more than that; 0 is without those in `left_out`.
        left_out: parameters of the network that guidance strengthens.
    """

    def __init__(
        self,
        network: str,
        noise: str,
        inputs: dict[str, str],
        output: str,
        steps: Count,
        method: Literal["euler", "heun"] = "heun",
        guidance: float = 1.0,
        left_out: tuple[str, ...] = (),
    ) -> None:
        if unknown := set(left_out) - set(inputs):
            raise ValueError(f"left_out {sorted(unknown)}: only names among inputs can be left out")
        if guidance != 1 and not left_out:
            raise ValueError(f"guidance {guidance}: left_out says what it strengthens")
        self.network, self.noise, self.inputs = network, noise, inputs
        self.steps, self.method, self.guidance, self.left_out = steps, method, guidance, left_out
        self.reads, self.adds = (noise, *inputs.values()), (output,)

    @torch.no_grad()
    def __call__(self, state: State, networks: Networks, step: int) -> None:
        network = networks.live[self.network]
        given = {parameter: state[name] for parameter, name in self.inputs.items()}
        without = given | {name: torch.zeros_like(given[name]) for name in self.left_out}

        def velocity(point: Tensor, time: float) -> Tensor:
            times = point.new_full((len(point),), time)
            found: Tensor = network(point=point, time=times, **given)["velocity"]
            if self.guidance == 1:
                return found
            plain = network(point=point, time=times, **without)["velocity"]
            return plain + self.guidance * (found - plain)

        point, width = state[self.noise], 1 / self.steps
        for number in range(self.steps):
            slope = velocity(point, number * width)
            ahead = point + width * slope
            if self.method == "heun":
                ahead = point + width / 2 * (slope + velocity(ahead, (number + 1) * width))
            point = ahead
        state.add(self.adds[0], point.clamp(-1, 1))
