"""Pose estimation with composite fields (Kreiss, Bertoni and Alahi, CVPR 2019 and T-ITS 2021)."""

from typing import TYPE_CHECKING

from models.engine.exports import on_demand

if TYPE_CHECKING:
    from models.pose.decoding import FindObjects as FindObjects
    from models.pose.decoding import FindPeople as FindPeople
    from models.pose.earlier_losses import BceLaplace11 as BceLaplace11
    from models.pose.earlier_losses import BceLaplace12 as BceLaplace12
    from models.pose.earlier_losses import Paper2019 as Paper2019
    from models.pose.injectors import FieldPictures as FieldPictures
    from models.pose.injectors import Overlays as Overlays
    from models.pose.injectors import PhotoOverlays as PhotoOverlays
    from models.pose.losses import Composite as Composite
    from models.pose.multitask import TaskWeights as TaskWeights
    from models.pose.networks import PoseNetwork as PoseNetwork
    from models.pose.photos import Photos as Photos
    from models.pose.pose_plots import OKSHistogram as OKSHistogram
    from models.pose.pose_plots import PrecisionRecall as PrecisionRecall
    from models.pose.pose_plots import WorstImages as WorstImages
    from models.pose.pose_scores import BoxAP as BoxAP
    from models.pose.pose_scores import KeypointAP as KeypointAP
    from models.pose.pose_scores import KeypointErrors as KeypointErrors
    from models.pose.scenes import Scenes as Scenes
    from models.pose.scores import FieldMaxima as FieldMaxima

__all__, __getattr__ = on_demand(
    __name__,
    {
        "earlier_losses": ("BceLaplace11", "BceLaplace12", "Paper2019"),
        "decoding": ("FindObjects", "FindPeople"),
        "injectors": ("FieldPictures", "Overlays", "PhotoOverlays"),
        "losses": ("Composite",),
        "multitask": ("TaskWeights",),
        "networks": ("PoseNetwork",),
        "photos": ("Photos",),
        "pose_plots": ("OKSHistogram", "PrecisionRecall", "WorstImages"),
        "pose_scores": ("BoxAP", "KeypointAP", "KeypointErrors"),
        "scenes": ("Scenes",),
        "scores": ("FieldMaxima",),
    },
)
