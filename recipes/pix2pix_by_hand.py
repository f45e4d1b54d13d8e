"""pix2pix with a training step written by hand: `python recipes/pix2pix_by_hand.py runs/by_hand`.

Data, networks, optimizers, schedules, logs and resume points come from the recipe; only the iteration is written here.
It ends with the same weights as the declared steps of recipes/pix2pix.yaml.
"""

import sys
from pathlib import Path

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from figura.interfaces import StepReport
from figura.recipe.load import load_recipe
from figura.training.trainer import Trainer


def train_step(trainer: Trainer, x: Tensor, y: Tensor, index: int) -> dict[str, StepReport]:
    """Update the discriminator, then the generator; both use the same fake."""
    generator, discriminator = (trainer.networks.live[name] for name in ("generator", "discriminator"))
    with trainer.accelerator.autocast():
        fake = generator(x=x)["image"]
        judged = discriminator(x=x, y=y, fake=fake.detach())
    real_logits, fake_logits = judged["logits"], judged["fake_logits"]  # float32 in every precision, like all losses
    d_losses = {
        "D_real": binary_cross_entropy_with_logits(real_logits, real_logits.new_ones(real_logits.shape)),
        "D_fake": binary_cross_entropy_with_logits(fake_logits, fake_logits.new_zeros(fake_logits.shape)),
    }
    d_report = trainer.optimize("D", d_losses)  # weights, schedules, backward, clipping, optimizer of the recipe
    with trainer.accelerator.autocast():
        logits = discriminator(x=x, y=fake)["logits"]  # by the updated discriminator
    g_losses = {
        "G_GAN": binary_cross_entropy_with_logits(logits, logits.new_ones(logits.shape)),
        "G_L1": (fake - y).abs().mean(),
    }
    return {"D": d_report, "G": trainer.optimize("G", g_losses)}


def announce(trainer: Trainer, epoch: int, word: str = "epoch") -> None:
    """Print weights and latest values of G's losses; `loss_weights` and `loss_log` take names of losses or steps."""
    trainer.reporter.say(f"{word} {epoch}: {trainer.loss_weights('G')}, last {trainer.loss_log.last('G')}")


if __name__ == "__main__":
    Trainer(
        load_recipe(Path("recipes/pix2pix.yaml")),
        Path(sys.argv[1]),
        train_step=train_step,
        on_epoch_start=announce,
        hook_kwargs={"on_epoch_start": {"word": "beginning epoch"}},
    ).fit()
