"""Pose estimation with composite fields (Kreiss, Bertoni and Alahi, CVPR 2019 and T-ITS 2021)."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.pose.earlier_losses import BceLaplace11 as BceLaplace11
    from models.pose.earlier_losses import BceLaplace12 as BceLaplace12
    from models.pose.earlier_losses import Paper2019 as Paper2019
    from models.pose.injectors import FieldPictures as FieldPictures
    from models.pose.losses import Composite as Composite
    from models.pose.multitask import TaskWeights as TaskWeights
    from models.pose.networks import PoseNetwork as PoseNetwork
    from models.pose.scenes import Scenes as Scenes
    from models.pose.scores import FieldMaxima as FieldMaxima

__all__, __getattr__ = on_demand(
    __name__,
    {
        "earlier_losses": ("BceLaplace11", "BceLaplace12", "Paper2019"),
        "injectors": ("FieldPictures",),
        "losses": ("Composite",),
        "multitask": ("TaskWeights",),
        "networks": ("PoseNetwork",),
        "scenes": ("Scenes",),
        "scores": ("FieldMaxima",),
    },
)
