"""`figura translate`: recipes that pass all checks, no key lost, the losses of the originals, messages."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pictures_by_hand
import pytest
import torch
import toy
from pictures_by_hand import noise
from scipy.ndimage import correlate
from test_docs import fences

from figura.base.dotted_keys import leaves
from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.translate.command import main, translated
from figura.engine.build import build_schedule
from figura.preparation.datasets import Dataset
from figura.recipe.load import check_recipe
from figura.recipe.types import LOSS, build
from models.super_resolution.translate_basicsr import NETWORKS, OWN
from stages import eval_dump, metrics, prepare, train

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/coming_from"


@dataclass
class Case:
    """What people have, and what some keys of its recipe must be, by hand from what the original does."""

    source: str
    examples: int | None
    recipe: dict[str, Any]
    left: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)


def linear(start, end):
    return {"type": "Linear", "start": start, "end": end, "from": 1.0, "to": 0.0}


NECTARGAN_LEFT = {
    *(f"common.{key}" for key in ("gpu_ids", "output_directory", "experiment_name", "experiment_version")),
    "save.auto_increment_version", "dataloader.augmentations.target", "train.load.continue_train",
    "train.load.load_epoch", *(f"visualizer.visdom.{key}" for key in ("env_name", "server", "port", "image_size")),
    *(f"train.discriminator.learning_rate.{key}" for key in ("epochs", "epochs_decay", "initial", "target")),
}  # fmt: skip
(PRJOTI,) = [one for one in fences((PAGES / "vunet.md").read_text(), "yaml") if one.startswith("# edflow")]
(GUIDE,) = [one.removeprefix("$ ").strip() for one in fences((PAGES / "openpifpaf.md").read_text(), "console")]
PIX2PIX = "python train.py --dataroot ./datasets/facades --name facades_pix2pix --model pix2pix"
ESRGAN = """
model_type: ESRGANModel
scale: 4
manual_seed: 0
datasets:
  train: {type: PairedImageDataset, dataroot_gt: HR, dataroot_lq: LR, io_backend: {type: disk}, gt_size: 128,
          batch_size_per_gpu: 16}
network_g: {type: RRDBNet, num_in_ch: 3, num_out_ch: 3, num_feat: 64, num_block: 23}
network_d: {type: VGGStyleDiscriminator, num_in_ch: 3, num_feat: 64}
path: {pretrain_network_g: net_g_1000000.pth, resume_state: ~}
train:
  ema_decay: 0.999
  optim_g: &adam {type: Adam, lr: !!float 1e-4, weight_decay: 0, betas: [0.9, 0.99]}
  optim_d: *adam
  scheduler: {type: MultiStepLR, milestones: [50000, 100000], gamma: 0.5}
  total_iter: 400000
  warmup_iter: -1
  pixel_opt: {type: L1Loss, loss_weight: !!float 1e-2, reduction: mean}
  perceptual_opt: {type: PerceptualLoss, layer_weights: {conv5_4: 1}, vgg_type: vgg19, use_input_norm: true,
                   range_norm: false, perceptual_weight: 1.0, style_weight: 0, criterion: l1}
  gan_opt: {type: GANLoss, gan_type: vanilla, real_label_val: 1.0, fake_label_val: 0.0, loss_weight: !!float 5e-3}
  net_d_iters: 1
val: {val_freq: !!float 5e3, metrics: {psnr: {type: calculate_psnr, crop_border: 4, test_y_channel: true}}}
"""
(DLAS,) = fences((PAGES / "dl_art_school.md").read_text(), "yaml [^\n]+")
DIV2K = """
scale: 4
datasets: {train: {batch_size: 16, paths: [/content/div2k], target_size: 128, scale: 4}}
networks:
  generator: {type: generator, which_model_G: RRDBNet, in_nc: 3, out_nc: 3, nf: 64, nb: 23, scale: 4}
  judge: {type: discriminator, which_model_D: discriminator_vgg_128_gn, nf: 64, in_nc: 3}
path: {strict_load: true}
steps:
  judge:
    training: judge
    after: 1000
    lr: !!float 2e-4
    beta2: 0.99
    injectors:
      plq: {type: image_patch, patch_size: 24, in: lq, out: plq}
      dgen_inj: {type: generator, generator: generator, grad: false, in: plq, out: gen}
    losses:
      gan: {type: discriminator_gan, gan_type: gan, weight: 1, noise: .004, gradient_penalty: true, real: hq, fake: gen}
  generator:
    training: generator
    optimizer: sgd
    optimizer_params: {lr: !!float 2e-4, momentum: 0.9}
    injectors:
      gen_inj: {type: generator, generator: generator, in: lq, out: gen}
    losses:
      pix: {type: pix, weight: .05, criterion: l2, real: hq, fake: gen}
      gan: {type: generator_gan, gan_type: gan, weight: .02, discriminator: judge, fake: gen, real: hq, after: 1000}
      translational: {type: translational, weight: 2, real: gen}
train: {niter: 500, warmup_iter: 50, mega_batch_factor: 2, default_lr_scheme: MultiStepLR, gen_lr_steps: [140, 180],
        lr_gamma: 0.5}
eval: {output_state: gen_generator}
logger: {visuals: [gen, hq]}
"""
RCAN = """
name: RCAN_BIX4-official
suffix: ~
model_type: SRModel
scale: 2
crop_border: ~
num_gpu: 1
manual_seed: 0
datasets:
  test_1: {name: set5, type: PairedImageDataset, dataroot_gt: set5/hr, dataroot_lq: set5/lr, io_backend: {type: disk}}
  test_2: {name: set14, type: PairedImageDataset, dataroot_gt: set14/hr, dataroot_lq: set14/lr, filename_tmpl: '{}x4'}
  test_3: {name: photos, type: SingleImageDataset, dataroot_lq: photos}
network_g: {type: RCAN, num_in_ch: 3, num_out_ch: 3, num_feat: 64, num_group: 10, num_block: 20, squeeze_factor: 16,
            upscale: 2, res_scale: 1, img_range: 255., rgb_mean: [0.4488, 0.4371, 0.4040]}
save_img: true
path: {pretrain_network_g: RCAN_BIX4-official.pth, strict_load_g: true}
"""
RRDB = (
    RCAN[: RCAN.index("network_g")]
    + """
network_g: {type: RRDBNet, num_in_ch: 3, num_out_ch: 3, num_feat: 64, num_block: 23, num_grow_ch: 32}
path: {pretrain_model_g: RRDBNet x2.pth, strict_load: true}
val: {save_img: true, suffix: ~, metrics: {psnr: {type: calculate_psnr, crop_border: 3, test_y_channel: true}}}
"""
)
REAL = """
model_type: RealESRGANModel
scale: 2
num_gpu: 2
l1_gt_usm: True
percep_gt_usm: True
gan_gt_usm: False
resize_prob: [0.2, 0.7, 0.1]
gaussian_noise_prob: 0.5
noise_range: [1, 30]
gray_noise_prob: 0.4
second_blur_prob: 0.8
gt_size: 256
queue_size: 180
datasets:
  train:
    type: RealESRGANDataset
    dataroot_gt: DF2K
    kernel_list: [iso, aniso, generalized_iso, plateau_aniso]
    kernel_prob: [0.5, 0.25, 0.15, 0.1]
    final_sinc_prob: 0.8
    use_rot: False
    batch_size_per_gpu: 12
network_g: {type: RRDBNet, num_feat: 64, num_block: 23, num_grow_ch: 32, scale: 2}
network_d: {type: UNetDiscriminatorSN, num_in_ch: 3, num_feat: 64, skip_connection: True}
train:
  optim_g: {type: Adam, lr: !!float 1e-4}
  optim_d: {type: Adam, lr: !!float 1e-4}
  pixel_opt: {type: L1Loss, loss_weight: 1.0}
  perceptual_opt: {layer_weights: {conv1_2: 0.1, conv5_4: 1}, perceptual_weight: 1.0}
  gan_opt: {gan_type: vanilla, loss_weight: !!float 1e-1}
"""
REDUX = """
scale: 4
use_amp: true
use_compile: false
datasets:
  train: {type: pairedimagedataset, dataroot_gt: [hr, hr2], dataroot_lq: lr, lq_size: 64, batch_size_per_gpu: 8,
          accum_iter: 2}
network_g: {type: esrgan, use_pixel_unshuffle: true}
network_d: {type: dunet}
network_g_teacher: {type: esrgan}
train:
  adaptive_d: true
  eco: {enabled: true}
  grad_clip: true
  optim_g: {type: AdamW, lr: !!float 1e-4}
  optim_d: {type: AdamW, lr: !!float 1e-4}
  scheduler: {type: cosineannealingrestartlr, periods: [500], restart_weights: [1], eta_min: !!float 1e-6}
  warmup_iter: 100
  losses:
    - {type: charbonnierloss, loss_weight: 1.0}
    - {type: hsluvloss, loss_weight: 1.0}
    - {type: ganloss, gan_type: lsgan, loss_weight: 0.1}
    - {type: ffloss, loss_weight: 0.2}
"""
CASES = {
    "nectargan": Case(
        str(PAGES / "nectargan_facades.json"),
        400,
        {"losses.G_LAP.weight": 1.0, "train.precision": "fp16", "steps.D.lr_schedule": linear(39600, 80000)},
        NECTARGAN_LEFT,
    ),
    "nectargan, basic": Case(
        f"nectargan-train-paired -f {PAGES / 'nectargan_facades.json'} -lss basic -log",
        10,
        {"losses.G_VGG.weight": 0.0, "losses.G_SOBEL.weight": 0.0, "losses.G_L1.weight": 100.0, "train.steps": 2000},
        NECTARGAN_LEFT | {f"train.loss.lambda_{loss}" for loss in ("l2", "sobel", "laplacian", "vgg")},
    ),
    "junyanz, pix2pix": Case(
        f"{PIX2PIX} --netG unet_256 --direction BtoA --lambda_L1 100 --dataset_mode aligned --norm batch --pool_size 0",
        400,
        {
            "networks.generator.n_downs": 6, "networks.generator.relu_skips": True, "networks.generator.norm": "batch",
            "networks.discriminator.n_layers": 4, "data.common.direction": "b_to_a", "losses.G_GAN.kind": "vanilla",
            "steps.G.lr_schedule": linear(39600, 80000), "train.steps": 80000,
        },
    ),
    "junyanz, other networks": Case(
        f"{PIX2PIX} --netG resnet_6blocks --netD n_layers --n_layers_D 2 --ndf 32 --input_nc 1 --no_flip --gan_mode "
        "wgangp --lr_policy step --niter 60 --lr_decay_iters 30 --batch_size 4 --checkpoints_dir x --gpu_ids 0,1",
        10,
        {
            "networks.generator.type": "images.ResNetGenerator", "networks.generator.blocks": 6,
            "networks.generator.dropout": 0.5, "networks.generator.in_channels": 1, "data.common.x_channels": 1,
            "networks.discriminator.n_layers": 3, "networks.discriminator.max_features": 256,
            "losses.D_fake.kind": "wgan", "train.steps": 160 * 3,
            "steps.D.lr_schedule": {"type": "Decay", "at": [90, 180, 270, 360, 450], "factor": 0.1, "over": 0},
        },
        {"--checkpoints_dir", "--gpu_ids"},
    ),
    "junyanz, cycle_gan": Case(
        "python train.py --dataroot ./datasets/maps --name maps_cyclegan --model cycle_gan --pool_size 0 --no_dropout "
        "--lambda_A 20 --lambda_identity 0.1 --preprocess scale_width --load_size 1024",
        1096,
        {
            "losses.cycle_x.weight": 20.0, "losses.same_x.weight": 2.0, "losses.same_y.weight": 1.0,
            "losses.G_x.kind": "lsgan", "steps.D.injectors.pool.type": "Detach", "networks.judge_x.in_channels": 0,
            "networks.to_x.blocks": 9, "train.steps": 219200,
        },
        {"--preprocess", "--load_size"},
    ),
    "vunet": Case(
        "{folder}/base.yaml",
        946,
        {
            "networks.generator.convolution": "plain", "networks.generator.output": "tanh", "train.steps": 11825,
            "losses.KL.schedule": {"type": "Linear", "start": 2000, "end": 3500, "from": 0.0, "to": 1.0},
        },
        {"code_root"},
        {"base.yaml": PRJOTI},
    ),
    "vunet, changed": Case(
        "CUDA_VISIBLE_DEVICES=1 edflow -n mine -b {folder}/base.yaml {folder}/data.yaml -t --losses/color_L1/weight 2 "
        "--losses/KL/end_ramp_it=2000 --losses/KL/weight 3 --num_steps 500 --model_pars/final_act false",
        10,
        {
            "networks.generator.convolution": "normalised", "networks.generator.output": "linear", "train.steps": 500,
            "losses.color_L1.weight": 2.0, "losses.KL.weight": 1.0,
            "losses.KL.schedule": {"type": "Step", "at": [2000], "values": [0.0, 1.0]},
        },
        {"-n", "-t", "code_root", "losses.KL.weight"},
        {"base.yaml": PRJOTI, "data.yaml": "data_root: /mine\n"},
    ),
    "vunet, the authors": Case(
        "{folder}/market.yaml",
        None,
        {
            "data.common.image_size": 128, "data.batch_size": 16, "networks.generator.dropout": 0.1,
            "steps.generator.lr_schedule.end": 20000, "losses.perceptual.layers.relu2_2": 115.2,
            "losses.KL.schedule": {"type": "Linear", "start": 10000, "end": 15000, "from": 1.0e-6, "to": 1.0},
            "losses.perceptual.layers.image": 127.5,
        },
        {"data_index", "init_batches", "box_factor", "gram_weights"},
        {"market.yaml": "data_index: data/market/index.p\nbatch_size: 16\ninit_batches: 4\nspatial_size: 128\n"
         "box_factor: 1\nlr: 1.0e-3\nlr_decay_begin: 1000\nlr_decay_end: 20000\ndrop_prob: 0.1\nfeature_layers: "
         "[input_1, block2_conv2]\nfeature_weights: [1.0, 2.0]\ngram_weights: [0.0, 0.05]\n"},
    ),
    "openpifpaf": Case(
        GUIDE,
        None,
        {
            "data.common.side": 385, "data.common.heads.cif.stride": 8, "losses.caf.b_scale": 10.0,
            "steps.network.clip_value": 10.0, "train.steps": 442000, "train.ema.decay": 0.99,
            "steps.network.lr_schedule.of.decay": {
                "type": "Decay", "at": [388960, 424320], "factor": 0.1, "over": 17680},
        },
    ),
    "openpifpaf, boxes": Case(
        "python3 -m openpifpaf.train --lr=0.0003 --momentum=0.95 --clip-grad-value=10 --epochs=150 --lr-decay 130 140 "
        "--lr-decay-epochs=10 --batch-size=64 --weight-decay=1e-5 --dataset=cocodet --cocodet-upsample=2 "
        "--basenet=resnet18 --resnet-input-conv2-stride=2 --resnet-block5-dilation=2",
        None,
        {"networks.network.backbone.input_conv2": True, "data.common.heads.cifdet.stride": 8, "train.steps": 274800},
    ),
    "openpifpaf, four pictures": Case(
        "time CUDA_VISIBLE_DEVICES=1 python3 -m openpifpaf.train --lr=0.01 --momentum=0.9 --b-scale=5.0 --epochs=1000 "
        "--lr-warm-up-epochs=100 --batch-size=4 --train-batches=1 --val-batches=1 --val-interval=100 "
        "--weight-decay=1e-5 --dataset=cocokp --cocokp-upsample=2 --cocokp-no-augmentation --basenet=shufflenetv2k16 "
        "2>&1 | tee log",
        None,
        {
            "train.steps": 1000, "data.train.scenes.augmentation": None, "train.evaluate_every": 100,
            "steps.network.lr_schedule.of.warm_up.steps": 100, "train.evaluate_limit": 4,
        },
    ),
    "openpifpaf, many flags": Case(
        "openpifpaf.train --dataset cocokp --cocokp-with-dense --adam --lambdas 1 2 3 --component-lambdas 1 2 3 4 5 6 "
        "7 8 9 --basenet=resnet50 --resnet-no-pretrain --resnet-block5-dilation 2 --caf-min-size 2 --cocokp-blur 0.1 "
        "--encoder-no-suppress-selfhidden --cross-talk 0.1 --lr-warm-restarts 1 --stride-apply 2 --batch-size 8 "
        "--cocokp-bmin 0.2 --cocokp-rescale-images 0.5 --auto-tune-mtl --fix-batch-norm 2 --scale-soft-clamp 0 "
        "--regression-soft-clamp 3 --ema 0 --bce-background-clamp=-10",
        64,
        {
            "networks.network.backbone": {"name": "resnet50", "block5_dilation": 2}, "train.accumulation": 2,
            "data.common.heads.caf25": {"kind": "caf", "connections": "dense", "stride": 8, "min_size": 2,
                                        "bmin": 0.2, "suppress_hidden": None},
            "losses.caf25.vector": 8.0, "losses.caf25.weight": 1.0, "losses.caf.inputs.log_sigmas": "caf_sigmas",
            "losses.cif.regression_soft_clamp": None, "losses.cif.background_clamp": -10.0, "train.ema": None,
            "data.train.scenes.augmentation.geometry.rescale.relative": [0.2, 1.0], "data.batch_size": 16,
            "callbacks.norms.batch_norms_after": 8, "steps.network.optimizer.type": "torch.optim.Adam",
        },
        {"--cross-talk", "--lambdas", "--lr-warm-restarts", "--regression-soft-clamp"},
    ),
    "openpifpaf, a plugin": Case(
        "openpifpaf.train --dataset=wholebody --wholebody-upsample=2 --wholebody-train-annotations=a.json "
        "--wholebody-apply-local-centrality-weights --checkpoint=shufflenetv2k30-wholebody.pkl",
        100,
        {"networks.network.backbone.name": "shufflenetv2k30"},
        {"--wholebody-apply-local-centrality-weights"},
    ),
    "openpifpaf.eval": Case(
        'python3 -m openpifpaf.eval --watch --checkpoint "outputs/shufflenetv2k16-201023-1-cocokp.pkl.epoch??[0,5]"'
        " --dataset=cocokp --loader-workers=2 --force-complete-pose --seed-threshold=0.2 --coco-eval-long-edge=321",
        None,
        {"evaluate.modes.poses.injectors.people.decoder.force_complete": True, "evaluate.data.scenes.side": 321,
         "evaluate.data.scenes.keep_empty": False, "evaluate.batch_size": 1},
        {"--watch"},
    ),
    "openpifpaf.predict": Case(
        "python -m openpifpaf.predict coco/1.jpg coco/2.jpg -q --image-output --long-edge=1025 --line-width=2 "
        "--decoder posesimilarity",
        None,
        {"predict.data.side": 1025, "predict.injectors.draw_photo.style.line_width": 2, "runtime.progress": False},
        {"--image-output", "--decoder"},
    ),
}  # fmt: skip
RCAN_LEFT = {
    "suffix", "datasets.test_2.filename_tmpl", "datasets.test_1.io_backend.type",
    *(f"datasets.test_{place}.{key}" for place in (1, 2, 3) for key in ("name", "type")),
}  # fmt: skip
CASES |= {
    "basicsr, ESRGAN": Case(
        "python basicsr/train.py -opt {folder}/esrgan.yml --auto_resume",
        None,
        {
            "data.common.type": "super_resolution.PairedPatches", "data.train.scenes.small": "train_small",
            "networks.generator.blocks": 23, "networks.generator.pixels": "unit", "train.steps": 400000,
            "networks.discriminator.type": "super_resolution.VGGDiscriminator", "seed": 0, "train.ema.decay": 0.999,
            "steps.D.optimizer.betas": [0.9, 0.99], "losses.G_feature.layers": {"relu5_2": 1.0},
            "steps.G.lr_schedule": {"type": "Decay", "at": [50000, 100000], "factor": 0.5, "over": 0},
            "losses.D_real.inputs.opposite": "fake_level", "losses.D_fake.inputs.opposite": "real_level",
            "steps.D.injectors.levels.names": {"real_logits": "real_level", "fake_logits": "fake_level"},
        },
        {"--auto_resume", "datasets.train.io_backend.type", "path.resume_state", "train.net_d_iters"},
        {"esrgan.yml": ESRGAN},
    ),
    "basicsr, Real-ESRGAN": Case(
        "{folder}/real.yml",
        None,
        {
            "data.common.size": 256, "networks.generator.unshuffle": 2, "steps.G.clip": None,
            "steps.D.injectors.judge.inputs.image": "hq", "losses.G_l1.inputs.target": "sharp", "data.batch_size": 24,
            "data.common.degradation.sinc": {"chance": 0.8, "cutoff": [0.33, 1.0]},
            "losses.G_feature.layers": {"relu1_2": 0.1, "relu5_2": 1.0},
        },
        {"queue_size", "gray_noise_prob"},
        {"real.yml": REAL},
    ),
    "basicsr, test.py": Case(
        "python basicsr/test.py -opt {folder}/rrdb.yml",
        None,
        {
            "data.common.scale": 2, "seed": 0, "data.validation.scenes.small": "validation_small",
            "networks.generator.unshuffle": 2, "metrics.scores.upscaling.crop_border": 3,
            "metrics.scores.bicubic.channel": "y", "metrics.summary.psnr_x4": None,
            "metrics.summary.psnr_x2": {"metric": "upscaling.psnr_y", "beside": "bicubic.psnr_y", "better": "higher"},
            "losses.G_l1.type": "images.L1",
        },
        RCAN_LEFT | {"datasets.test_3.dataroot_lq", "path.strict_load", "val.suffix"},
        {"rrdb.yml": RRDB},
    ),
    "dl_art_school": Case(
        "{folder}/esrgan.yml",
        None,
        {
            "networks.generator.blocks": 23, "networks.generator.pixels": "unit", "steps.D.detach": ["sr"],
            "networks.generator.trunk_skip": "output",
            "steps.G.optimizer.betas": [0.9, 0.999], "losses.G_feature.layers": {"relu5_2": 1.0},
            "train.ema.decay": 0.999, "metrics.scores.upscaling.image": "sr",
        },
        set(),
        {"esrgan.yml": DLAS},
    ),
    "dl_art_school, its own": Case(
        "{folder}/div2k.yml",
        None,
        {
            "steps.judge.after": 1000, "steps.judge.injectors.dgen_inj.grad": False, "train.accumulation": 2,
            "steps.judge.injectors.points_gan.requires_grad": True, "losses.judge_gan_slope.weight": 10.0,
            "steps.judge.injectors.dgen_inj.inputs": {"x": "lq"}, "steps.generator.optimizer.type": "torch.optim.SGD",
            "steps.generator.injectors.gen_inj.outputs": {"image": "gen_generator"}, "networks.judge.norm": "none",
            "steps.generator.lr_schedule": {"type": "WarmUp", "steps": 50, "then": {
                "type": "Decay", "at": [140, 180], "factor": 0.5, "over": 0}},
        },
        {"networks.judge.which_model_D", "steps.judge.losses.gan.noise", "path.strict_load",
         "steps.judge.injectors.plq.type", "steps.judge.injectors.plq.patch_size",
         *(f"steps.generator.losses.translational.{key}" for key in ("type", "weight", "real"))},
        {"div2k.yml": DIV2K},
    ),
    "traiNNer-redux": Case(
        "{folder}/redux.yml",
        None,
        {
            "networks.generator.unshuffle": None, "data.common.size": 256, "losses.G_ff.weight": 2.5,  # 0.2 * 50 / 4
            "train.precision": "fp16", "steps.D.clip": 100.0, "train.accumulation": 2, "data.batch_size": 16,
            "networks.discriminator.type": "super_resolution.UNetDiscriminator",
            "steps.G.lr_schedule": {"type": "WarmUp", "steps": 100, "then": {
                "type": "CosineRestarts", "periods": [500], "weights": [1.0], "from": 1.0, "to": 0.01}},
        },
        {"network_d.type", "train.losses.1.type", "train.losses.1.loss_weight", "train.losses.3.type",
         "datasets.train.dataroot_gt", "use_compile", "network_g_teacher.type", "train.adaptive_d",
         "train.eco.enabled"},
        {"redux.yml": REDUX},
    ),
}  # fmt: skip
each_case = pytest.mark.parametrize("name", CASES)


def written(name, folder):
    case = CASES[name]
    for path, text in case.files.items():
        (folder / path).write_text(text)
    return translated(case.source.format(folder=folder), case.examples, folder / "recipe.yaml")


def of_file(text, folder):
    """Translate the text of a file."""
    (folder / "mine.yml").write_text(text)
    return translated(str(folder / "mine.yml"), None, folder / "recipe.yaml")


def left_of(translation):
    """Return the keys that were not taken over, each with the reason."""
    return {key: why for why, keys in translation.listed().items() for key in keys}


@each_case
def test_a_recipe_passes_all_checks_and_no_key_is_lost(name, tmp_path, capsys):
    translation = written(name, tmp_path)
    case = CASES[name]
    status = run(main, [case.source.format(folder=tmp_path), "--output", str(tmp_path / "recipe.yaml"),
                        *(["--examples", str(case.examples)] if case.examples else [])])  # fmt: skip
    said = capsys.readouterr()
    assert status == 0, said.err
    recipe = dict(leaves(read_yaml(tmp_path / "recipe.yaml")))
    assert recipe == dict(leaves(translation.recipe))
    wanted = dict(leaves(case.recipe))
    assert {key: recipe.get(key) for key in wanted} == wanted
    left = left_of(translation)
    assert set(left) == case.left
    assert {*translation.given} == {*left} | (translation.taken & {*translation.given})
    assert not any("does not know it" in why for why in left.values())
    for key, why in left.items():
        assert re.search(rf"  (.*, )?{re.escape(key)}(,.*)?: {re.escape(why)}", said.out)
    keys, row = translation.keys, translation.system.row
    unknown = [key for key in translation.taken if not (keys.describe(row(key)) or key in keys.said)]
    assert set(unknown) <= {"arguments"}  # the table has each option that is read


@pytest.mark.parametrize(("name", "file"), [("openpifpaf", "shufflenetv2k16"), ("openpifpaf, boxes", "cocodet")])
def test_a_training_of_the_guide_is_the_published_recipe(name, file, tmp_path):
    """But for what is logged, kept and validated each epoch there."""
    found = dict(leaves(written(name, tmp_path).recipe))
    wanted = dict(leaves(toy.shipped(f"recipes/published/openpifpaf_{file}.yaml")))
    rarer = {"train.evaluate_every", "runtime.log_every", "runtime.checkpoint_every"}
    assert {key for key in {*found, *wanted} if found.get(key) != wanted.get(key)} <= rarer


@pytest.mark.parametrize(
    ("page", "name"),
    [("nectargan", "nectargan"), ("vunet", "vunet"), ("basicsr", "basicsr, ESRGAN"), ("openpifpaf", "openpifpaf"),
     ("dl_art_school", "dl_art_school")],
)  # fmt: skip
def test_a_page_shows_what_the_command_says(page, name, tmp_path, capsys):
    written(name, tmp_path)
    file = tmp_path / "mine.yaml"
    examples = ["--examples", str(CASES[name].examples)] if CASES[name].examples else []
    assert run(main, [CASES[name].source.format(folder=tmp_path), "--output", str(file), *examples]) == 0
    (shown,) = fences((PAGES / f"{page}.md").read_text(), "text")
    assert shown in capsys.readouterr().out.replace(f"{tmp_path}/", "") + file.read_text()


def test_a_table_is_printed(capsys):
    """A line each: what it says about a key of theirs that is taken over, and of one that is not."""
    assert run(main, ["--keys", "openpifpaf"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| `--b-scale` | `b_scale` | 1.0 |" in lines
    assert [line for line in lines if line.startswith("| `--cross-talk`")]
    assert run(main, ["--keys", "openpifpaf", "x.yaml"]) == 0
    assert run(main, ["x.yaml"]) == 1
    assert "expected SOURCE and --output FILE, or --keys SYSTEM" in capsys.readouterr().err


def test_a_file_of_test_py_names_its_sets(tmp_path):
    """Pairs are splits, the first one `validation`; its weights become a run, which is evaluated."""
    translation = written("basicsr, test.py", tmp_path)
    assert translation.data["recipe"]["images"] == {
        "validation": "set5/hr", "validation_small": "set5/lr", "set14": "set14/hr", "set14_small": "set14/lr",
    }  # fmt: skip
    (line,) = [one for there, one in translation.commands.items() if "pickle" in there]
    assert line == f"figura import esrgan 'RRDBNet x2.pth' --output runs/recipe --recipe {tmp_path}/recipe.yaml"


@pytest.mark.parametrize(
    ("there", "here"), [("/data/HR", "train"), ("../HR", "train"), ("D:/HR", "train"), ("./sets/HR", "./sets/HR")]
)
def test_a_folder_outside_the_source_is_to_be_copied(there, here, tmp_path):
    """`prepare` refuses paths that leave it."""
    translation = of_file(ESRGAN.replace("dataroot_gt: HR", f"dataroot_gt: {there}"), tmp_path)
    assert translation.data["recipe"]["images"]["train"] == here
    assert (f"copy {there} to train below the source of the data" in translation.remarks) == (here == "train")


def test_several_sets_of_a_training_are_splits(tmp_path):
    """HAT's files have no `val`; a split's name has small letters."""
    sets = "".join(f"  val_{n}: {{name: {one}, dataroot_gt: {one}}}\n" for n, one in enumerate(("Set5", "Set 14")))
    found = of_file(REAL.replace("network_g", f"{sets}network_g", 1), tmp_path).data["recipe"]
    assert found["images"] == {"train": "DF2K", "validation": "Set5", "set_14": "Set 14"}
    Dataset.model_validate(found)


def test_an_rcan_has_the_names_of_spandrel(tmp_path):
    translation = of_file(RCAN, tmp_path)
    assert translation.recipe["networks"]["generator"] == {
        "type": "spandrel.architectures.RCAN.RCAN", "n_colors": 3, "n_feats": 64, "n_resgroups": 10, "n_resblocks": 20,
        "reduction": 16, "rgb_range": 255, "scale": 2,
    }  # fmt: skip
    assert translation.recipe["metrics"]["scores"]["upscaling"]["crop_border"] == 2
    left = left_of(translation)
    assert {*left} == RCAN_LEFT | {
        "datasets.test_3.dataroot_lq", "path.pretrain_network_g", "path.strict_load_g",
        *(f"network_g.{key}" for key in ("num_out_ch", "res_scale", "rgb_mean")),
    }  # fmt: skip
    assert "`figura import state`" in left["path.pretrain_network_g"]


SPAN = REDUX.replace("{type: esrgan, use_pixel_unshuffle: true}", "{type: span}")
LDL = "ldl_opt: {type: L1Loss, loss_weight: 1.0}\n  perceptual_opt"
DEGRADED = """
scale: 4
high_order_degradation: true
datasets: {train: {type: realesrgandataset, dataroot_gt: hr, lq_size: 64}}
network_g: {type: esrgan}
"""
SINC = REAL.replace("kernel_list", "sinc_prob2: 0.1\n    kernel_list")
EQUAL = dict.fromkeys(("nearest", "lanczos", "bilinear", "bicubic"), 1.0)


@pytest.mark.parametrize(
    ("text", "here", "value"),
    [
        (SPAN, "networks.generator.norm", False),
        (ESRGAN.replace("scale: 4", "scale: 3"), "data.common.size", 126),  # gt_size 128: lq has 128 // 3 pixels
        (ESRGAN.replace(", gamma: 0.5", ""), "steps.G.lr_schedule.factor", 0.1),
        (REDUX, "steps.G.optimizer", {"type": "torch.optim.AdamW", "lr": 1e-4}),  # torch's own decay, 0.01
        (ESRGAN.replace("conv5_4: 1", "relu1_2: 0.1, relu3_4: 1, relu5_4: 0.5"), "losses.G_feature.layers",
         {"relu1_2": 0.1, "relu3_4": 1.0, "relu5_2": 0.5}),
        (ESRGAN.replace("conv5_4: 1", "conv5_3: 0.25, conv5_4: 1"), "losses.G_feature.layers", {"relu5_2": 1.25}),
        (REAL.replace("perceptual_opt", LDL), "losses.G_ldl.inputs",
         {"image": "sr", "target": "hq", "average": "sr_average"}),
        (REAL.replace("perceptual_opt", LDL), "steps.G.injectors.average",
         {"type": "Forward", "network": "generator", "inputs": {"x": "lq"}, "outputs": {"image": "sr_average"},
          "weights": "ema"}),
        (SPAN.replace("hsluvloss", "ldlloss"), "steps.G.injectors.average.outputs", {"output": "large_average"}),
        (REDUX.replace("hsluvloss, loss_weight: 1.0", "ldlloss, loss_weight: 0"), "steps.G.injectors.average", None),
        (SPAN.replace("hsluvloss", "ldlloss"), "steps.G.injectors.signed_average",
         {"type": "Sum", "output": "sr_average", "terms": {"large_average": 2.0}, "constant": -1.0}),
        (DEGRADED, "data.common.degradation", {
            "rounds": [
                {"resize": {"of": "large", "chance": 0.9, "smaller": 0.777778, "factor": [0.4, 1.5], "kernels": EQUAL},
                 "compression": {"chance": 1.0, "type": "jpeg", "quality": [75, 95]}},
                {"resize": {"of": "small", "chance": 0.7, "smaller": 0.571429, "factor": [0.6, 1.2],
                            "kernels": EQUAL}}],
            "kernels": EQUAL, "compression": {"chance": 1.0, "type": "jpeg", "quality": [75, 95]}}),
        (DEGRADED + "blur_prob: 0.5", "data.common.degradation.rounds.0.blur.shapes",
         {"gaussian": 0.7, "generalised": 0.15, "plateau": 0.15}),
        (REAL, "data.common.degradation.rounds.0.blur.chance", 1.0),  # BasicSR has no key of it, and none of modes
        # a second filter in 80 % of the pictures, in a tenth of them the sinc's: 8 %, and 72 % of all are blurred
        (SINC, "data.common.degradation.rounds.1.sinc.chance", 0.08),
        (SINC, "data.common.degradation.rounds.1.blur.chance", round(0.72 / 0.92, 6)),
        (REAL, "data.common.degradation.kernels", dict.fromkeys(("area", "bilinear", "bicubic"), 1.0)),
        (REAL.replace("RealESRGANModel", "RealESRNetModel\ngt_usm: true"), "losses.G_l1.inputs.target", "sharp"),
        (REAL.replace("RealESRGANModel", "RealHATMSEModel\ngt_usm: true"), "losses.G_l1.inputs.target", "sharp"),
        (REAL.replace("RealESRGANModel", "RealHATGANModel"), "steps.G.injectors.judge.outputs",
         {"logits": "judged_fake"}),
        (ESRGAN.replace("PairedImageDataset", "ImageNetPairedDataset"), "data.common.type", "super_resolution.Patches"),
        (REAL.replace("RealESRGANDataset", "RealESRGANPairedDataset"), "data.train.scenes.small", "train_small"),
        (RCAN.replace("SRModel", "DATModel"), "data.common.scale", 2),
        (RCAN.replace("SRModel", "HATModel\ntile: {tile_size: 256, tile_pad: 32}"), "data.common.scale", 2),
    ],
)  # fmt: skip
def test_what_a_file_of_basicsr_leaves_open_is_as_there(text, here, value, tmp_path):
    found: Any = of_file(text, tmp_path).recipe
    for name in here.split("."):
        found = found[int(name)] if isinstance(found, list) else found.get(name)
    assert found == value


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        (ESRGAN.replace("real_label_val: 1.0", "real_label_val: 0.9"), "train.gan_opt.real_label_val", "labels are 1"),
        (ESRGAN.replace("fake_label_val: 0.0", "fake_label_val: 0.1"), "train.gan_opt.fake_label_val", "labels are 1"),
        (REAL.replace("skip_connection: True", "skip_connection: False"), "network_d.skip_connection", "always has"),
        (REDUX.replace("type: charbonnierloss, loss_weight: 1.0", "type: l1loss, loss_weight: -0.5"),
         "train.losses.0.loss_weight", "towards the enlarged input"),
        (REAL.replace("RealESRGANDataset", "ImageNetPairedDataset"), "datasets.train.type", "left out here"),
        (REAL.replace("num_gpu: 2", "num_gpu: auto"), "num_gpu", "batch_size_per_gpu times their number"),
        (REAL.replace("RealESRGANDataset", "PairedImageDataset"), "l1_gt_usm", "no sharpened target"),
        (ESRGAN.replace("dataroot_lq: LR", "dataroot_lq: HR"), "datasets.train.dataroot_lq", "one of their own"),
        (DLAS.replace("weight_decay: 0,", "weight_decay: 0.01,"), "steps.G.optimizer_params.weight_decay",
         "not of biases and norms there"),
        (DLAS.replace("criterion: l1, real: hq, fake: sr}", "criterion: l2, real: hq, fake: sr}"),
         "steps.G.losses.feature.criterion", "L1 of VGG19's features"),
        (DLAS.replace("which_model_F: vgg", "which_model_F: resnet"), "steps.G.losses.feature.which_model_F",
         "L1 of VGG19's features"),
    ],
)  # fmt: skip
def test_a_value_without_counterpart_is_listed(text, key, why, tmp_path):
    assert why in left_of(of_file(text, tmp_path))[key]


@pytest.mark.parametrize("text", ["", ", loss_weight: 0"])
def test_a_discriminator_that_no_loss_asks_is_left_out(text, tmp_path):
    """As traiNNer-redux does, whose files keep `network_d`."""
    gan = "    - {type: ganloss, gan_type: lsgan, loss_weight: 0.1}\n"
    translation = of_file(REDUX.replace(gan, text and gan.replace(", loss_weight: 0.1", text)), tmp_path)
    check_recipe(translation.recipe, tmp_path / "recipe.yaml")
    assert [*translation.recipe["networks"]] == ["generator"]
    assert not [name for name, entry in translation.recipe["losses"].items() if "Adversarial" in entry["type"]]
    assert {"network_d.type", "train.optim_d.lr"} <= left_of(translation).keys()


def test_the_scale_of_dl_art_school_is_that_of_its_patches(tmp_path):
    """Of its train_div2k_rrdb_psnr.yml, which has 2 at the top."""
    translation = of_file(DIV2K.replace("scale: 4", "scale: 2", 1), tmp_path)
    assert translation.recipe["data"]["common"]["scale"] == 4
    assert [*translation.recipe["metrics"]["summary"]] == ["psnr_x4"]
    assert "scale" in translation.left


RESTARTS = "default_lr_scheme: CosineAnnealingLR_Restart, T_period: [10, 20, 30, 40], restart_weights: [0.5, 0.4, 0.3]"


def test_weights_of_dl_art_school_belong_to_restarts(tmp_path):
    """Its first period has none."""
    recipe = of_file(DIV2K.replace("default_lr_scheme: MultiStepLR", RESTARTS), tmp_path).recipe
    assert recipe["steps"]["generator"]["lr_schedule"]["then"]["weights"] == [1.0, 0.5, 0.4, 0.3]


@pytest.mark.parametrize("kind", [kind for kind, (name, _, _) in NETWORKS.items() if name != OWN])
def test_a_network_of_spandrel_is_there_and_takes_the_arguments(kind, tmp_path):
    pytest.importorskip("spandrel")
    check_recipe(of_file(f"scale: 2\nnetwork_g: {{type: {kind}}}\n", tmp_path).recipe, tmp_path / "recipe.yaml")


# --- losses: what the originals compute, in NumPy ---

RANDOM = np.random.default_rng(5)
NAMES = "gen_generator sr hq sharp image target fake y x cycled_x cycled_y same_x same_y"
JUDGED = (
    "judge_0_real judge_0_fake judge_1_real judge_1_fake judged_real judged_fake real_logits "
    "fake_logits judged_logits judged_x judged_y real_x real_y not_x not_y"
)
IMAGES = {name: RANDOM.uniform(-1, 1, (2, 3, 8, 8)) for name in NAMES.split()}
LOGITS = {name: RANDOM.normal(size=(2, 1, 3, 3)) for name in JUDGED.split()}


def entropy(name, real):
    return np.logaddexp(0, -LOGITS[name] if real else LOGITS[name]).mean()


def relative(name, opposite, real):
    """BasicSR's ESRGANModel: cross-entropy of logits less the mean of the others."""
    logits = LOGITS[name] - LOGITS[opposite].mean()
    return np.logaddexp(0, -logits if real else logits).mean()


def square(name, real):
    return ((LOGITS[name] - real) ** 2).mean()


def l1(a, b):
    return np.abs(IMAGES[a] - IMAGES[b]).mean()


def edges(kernels, a, b):
    def size(image):
        found = [np.stack([correlate(one, np.array(k), mode="constant") for one in image.mean(1)]) for k in kernels]
        return found[0] if len(found) == 1 else np.sqrt(found[0] ** 2 + found[1] ** 2 + 1e-6)

    return np.abs(size(IMAGES[a]) - size(IMAGES[b])).mean()


MEANS = {role: {"top": RANDOM.normal(size=(2, 4, 1, 1))} for role in ("q_means", "p_means")}
nats = ((MEANS["q_means"]["top"] - MEANS["p_means"]["top"]) ** 2).sum((1, 2, 3)).mean() / 2
# one cell of a cif and of a caf: z, x, vector, raw scale; confidence, vector, least error, scale (OpenPifPaf, 0.13)
FIELDS = {"cif": np.array([0.0, 2.0, 1.5, -2.0, 0.4]), "cif_target": np.array([1, 0.5, -2, 0.0125, 2.0])}
FIELDS |= {"caf": np.array([0.0, 2.0, 1.5, -2.0, 1.5, -2.0, 0.4, 0.4])}  # two vectors and two scales, each as the cif's
FIELDS |= {"caf_target": np.array([1, 0.5, -2, 0.5, -2, 0.0125, 0.0125, 2.0, 2.0])}
FIELDS = {name: one.reshape(1, 1, -1, 1, 1) for name, one in FIELDS.items()}


def composite(b_scale):
    wrong = 1 / (1 + np.exp(2.0))
    focal = 0.5 * (wrong + (1 - wrong) * np.log1p(np.exp(-2.0)))
    confidence = (wrong * focal) ** 2 / 4
    vector = np.hypot(1, 0.0125) / (0.5 * 2) * np.exp(-0.69314) + 0.69314
    relative = abs(np.log1p(np.exp(0.4)) - 2) / (b_scale * 2.1)
    return confidence + vector + relative**2 / 2, confidence + 2 * vector + relative**2


SOBEL = [[1, 0, -1], [2, 0, -2], [1, 0, -1]], [[1, 2, 1], [0, 0, 0], [-1, -2, -1]]
LAPLACE = ([[0, 1, 0], [1, -4, 1], [0, 1, 0]],)
BATCH = IMAGES | LOGITS | MEANS | FIELDS | {f"{one}_level": LOGITS[f"{one}_logits"] for one in ("real", "fake")}
WITHOUT_VGG = {"G_VGG", "perceptual", "G_feature"}
ITERATION = 2750  # VUNet's KL then counts half
TOTALS = {  # case, step: the sum of all losses there but for those of VGG19, whose weights are no formula
    ("nectargan", "G"): entropy("judged_logits", 1) + 100 * l1("fake", "y") + 3 * edges(SOBEL, "fake", "y")
    + edges(LAPLACE, "fake", "y"),
    ("nectargan", "D"): (entropy("real_logits", 1) + entropy("fake_logits", 0)) / 2,
    ("nectargan, basic", "G"): entropy("judged_logits", 1) + 100 * l1("fake", "y"),
    ("junyanz, pix2pix", "G"): entropy("judged_logits", 1) + 100 * l1("fake", "y"),
    ("junyanz, pix2pix", "D"): (entropy("real_logits", 1) + entropy("fake_logits", 0)) / 2,
    ("junyanz, other networks", "D"): (LOGITS["fake_logits"].mean() - LOGITS["real_logits"].mean()) / 2,
    ("junyanz, cycle_gan", "G"): square("judged_y", 1) + square("judged_x", 1) + 20 * l1("cycled_x", "x")
    + 10 * l1("cycled_y", "y") + 0.1 * (10 * l1("same_y", "y") + 20 * l1("same_x", "x")),
    ("vunet", "generator"): 0.5 * l1("image", "target") + 0.5 * nats,
    ("vunet, changed", "generator"): 2 * l1("image", "target") + nats,
    ("openpifpaf", "network"): sum(composite(10)),
    ("openpifpaf, four pictures", "network"): sum(composite(5)),
    ("basicsr, ESRGAN", "G"): 0.01 * l1("sr", "hq") / 2 + 0.005 * (
        relative("judged_real", "judged_fake", 0) + relative("judged_fake", "judged_real", 1)) / 2,
    ("basicsr, ESRGAN", "D"): (
        relative("real_logits", "fake_logits", 1) + relative("fake_logits", "real_logits", 0)) / 2,
    ("basicsr, Real-ESRGAN", "G"): l1("sr", "sharp") / 2 + 0.1 * entropy("judged_fake", 1),
    ("basicsr, Real-ESRGAN", "D"): entropy("real_logits", 1) + entropy("fake_logits", 0),
    ("dl_art_school", "G"): 0.01 * l1("sr", "hq") / 2 + 0.005 * (
        relative("judge_0_real", "judge_0_fake", 0) + relative("judge_0_fake", "judge_0_real", 1)) / 2,
    ("dl_art_school", "D"): 0.5 * (
        relative("judge_1_real", "judge_1_fake", 1) + relative("judge_1_fake", "judge_1_real", 0)),
    ("dl_art_school, its own", "generator"): 0.05 * ((IMAGES["gen_generator"] - IMAGES["hq"]) ** 2).mean() / 4
    + 0.02 * entropy("judge_1_fake", 1),
    ("traiNNer-redux", "D"): square("real_logits", 1) + square("fake_logits", 0),
    ("junyanz, cycle_gan", "D"): sum(square(f"real_{one}", 1) + square(f"not_{one}", 0) for one in "xy") / 2,
}  # fmt: skip


def tensors(content):
    if isinstance(content, dict):
        return {name: tensors(one) for name, one in content.items()}
    return torch.from_numpy(content)


@pytest.mark.parametrize(("name", "step"), TOTALS)
def test_losses_are_those_of_the_original(name, step, tmp_path):
    translation = written(name, tmp_path)
    recipe = check_recipe(translation.recipe, tmp_path / "recipe.yaml")
    total = 0.0
    for key, entry in recipe.losses.items():
        if entry.step in (step, None) and entry.weight and key not in WITHOUT_VGG:
            inputs = {role: tensors(BATCH[source]) for role, source in entry.inputs.items()}
            schedule = entry.schedule and build_schedule(entry.schedule, key, ErrorCollector(tmp_path))
            weight = entry.weight * (schedule(ITERATION) if schedule else 1.0)
            value = build(entry, LOSS, key)(**inputs)
            total += weight * sum(float(one.mean()) for one in (value.values() if isinstance(value, dict) else [value]))
    assert total == pytest.approx(TOTALS[name, step], rel=1e-5)


# --- what is printed is run ---

SMALL = {
    "pix2pix": (f"{PIX2PIX} --netG unet_128 --ngf 4 --ndf 4 --crop_size 128 --load_size 136", {}),
    "esrgan": (
        "train.py -opt {folder}/small.yml",
        {"small.yml": re.sub(r"  perceptual_opt: .*\n.*\n", "", ESRGAN)
         .replace("num_feat: 64", "num_feat: 4").replace("num_block: 23", "num_block: 1")
         .replace("batch_size_per_gpu: 16", "batch_size_per_gpu: 2")},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_translated_recipe_prepares_trains_and_is_judged(name, tmp_path, monkeypatch):
    source, files = SMALL[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    translation = translated(source.format(folder=tmp_path), 4, Path("recipe.yaml"))
    translation.set("train.try", True)
    ((dataset, entry),) = translation.data.items()
    monkeypatch.chdir(tmp_path)
    for split, folder in entry[entry["kind"]].items():
        width, height = (256, 128) if name == "pix2pix" else (48, 36) if split.endswith("_small") else (192, 144)
        for number in range(6):
            pictures_by_hand.write(Path(entry["source"], folder, f"{number}.png"), noise(height, width, number))
    Path("data/params.yaml").write_text(to_yaml({"datasets": translation.data}))
    Path("recipe.yaml").write_text(to_yaml(translation.recipe))
    assert run(prepare.main, [dataset]) == 0
    assert run(train.main, ["recipe.yaml", "runs/recipe"]) == 0
    assert run(eval_dump.main, ["recipe.yaml", "runs/recipe"]) == 0
    assert run(metrics.main, ["recipe.yaml", "runs/recipe", "metrics/recipe.json", "plots/recipe"]) == 0
    assert json.loads(Path("metrics/recipe.json").read_text())["try"]


# --- messages ---

CONFIG = {"dataloader": {"batch_size": 1}, "train": {}, "save": {}}
CYCLE = "train.py --dataroot maps --model cycle_gan"
REFUSED = {
    f"{PIX2PIX} --direction AtoB\n{PIX2PIX} --direction BtoA": ("several commands; give one", ["--examples", "4"]),
    f"{PIX2PIX} && {PIX2PIX} --norm instance": ("several commands; give one", ["--examples", "4"]),
    f"cd here; {PIX2PIX}; python test.py": ("several commands; give one", ["--examples", "4"]),
    "test.py --dataroot testA --name x": ("give --model pix2pix or cycle_gan", ["--examples", "4"]),
    "train.py --dataroot maps --CUT_mode FastCUT": ("a training of CUT; begin with recipes/unpaired/cut.yaml", []),
    f"{CYCLE} --input_nc 1 --output_nc 1": ("unpaired pictures have 3 channels here", ["--examples", "4"]),
    "{folder}/neosr.toml": ("neosr.toml: TOML is not read; write it as YAML", []),
    "no such file.yaml": ("no file, and no command that figura knows", []),
    "train.py --model pix2pix --netG unet_512": ("--netG: found 'unet_512', which has no counterpart", []),
    "train.py --model pix2pix 'x": ("not a command line: No closing quotation", []),
    "train.py --model pix2pix": ("it counts in epochs, figura in steps: add --examples N", []),
    "train.py --model pix2pix --lr fast": ("--lr: found 'fast', expected float, such as 0.0002", []),
    "{folder}/wrong.json": ("dataloader.batch_size: found 'many', expected int, such as 1", ["--examples", "4"]),
    "train.py --model pix2pix \\\n --lr fast": ("train.py --model pix2pix   --lr fast: --lr: found", []),
    "train.py --model pix2pix --batch_size 0": ("the size of a batch: found 0; expected a whole", ["--examples", "4"]),
    "openpifpaf.train --dataset=cocokp --basenet=resnet18 --batch-size=0": (
        "--batch-size: found 0; expected a whole number from 1",
        ["--examples", "4"],
    ),
    "openpifpaf.train --dataset=cocokp --basenet=resnet18 --train-batches=all": (
        "--train-batches: found 'all'; expected a whole number from 1",
        [],
    ),
    "{folder}/zero.yaml": ("batch_size: found 0; expected a whole number from 1", ["--examples", "4"]),
    "{folder}/other.yaml": ("it has the keys some; expected those of", []),
    "{folder}/tag.yaml": ("a tag, which is not supported", []),
    "{folder}/kernels.yml": ("datasets.train.kernel_list: found 'round', which has no counterpart", []),
    "{folder}/empty.yml": ("networks: found {}, expected a map of names", []),
    "openpifpaf.train --basenet=resnet18 --lambdas 1 2 3": ("--lambdas: found [1, 2, 3]; expected 2 numbers", []),
    "openpifpaf.train --basenet=resnet18 --lr-decay late": ("--lr-decay: found ['late']; expected a list of", []),
    "openpifpaf.train --basenet=resnet18 --lr-warm-up-epochs .inf": ("--lr-warm-up-epochs: found inf, expected", []),
    "edflow -t -b": ("edflow -t -b: expected a file behind -b", []),
    "train.py --opt esrgan.yml": ("expected --dataroot or --model, or -opt and a file", []),
    "nectargan-train-paired -lss basic": ("names no configuration; expected --config_file or -f", []),
}


@pytest.mark.parametrize("source", REFUSED)
def test_what_cannot_be_translated_ends_in_one_line(source, tmp_path, capsys):
    (tmp_path / "wrong.json").write_text(json.dumps(CONFIG | {"dataloader": {"batch_size": "many"}}))
    (tmp_path / "other.yaml").write_text("some: 1\n")
    (tmp_path / "neosr.toml").write_text('name = "mine"\n')
    (tmp_path / "zero.yaml").write_text(re.sub(r"(?m)^batch_size: \d+", "batch_size: 0", PRJOTI))
    (tmp_path / "tag.yaml").write_text("some: !!python/object/apply:os.system [ls]\n")
    (tmp_path / "empty.yml").write_text("networks: {}\nsteps: {}\n")
    (tmp_path / "kernels.yml").write_text(REAL.replace("[iso, aniso,", "[round, aniso,"))
    part, options = REFUSED[source]
    assert run(main, [source.format(folder=tmp_path), "--output", str(tmp_path / "recipe.yaml"), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert part in line
    assert not (tmp_path / "recipe.yaml").exists()


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text("mine")
    assert run(main, [CASES["nectargan"].source, "--output", str(tmp_path / "recipe.yaml")]) == 1
    assert "it is there already" in capsys.readouterr().err
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "key", "part"),
    [
        (f"{PIX2PIX} --lamda_L1 10", "--lamda_L1",
         "does not know it, and nothing was done (did you mean '--lambda_L1'?)"),
        ("openpifpaf.train --basenet=mobilenetv2", "--basenet", "mobilenetv2 has 32 there"),
        (f"{CYCLE} --dataset_mode aligned", "--dataset_mode", "reads folders of A and of B all the same"),
    ],
)  # fmt: skip
def test_a_value_that_an_option_lacks_is_listed(command, key, part, tmp_path):
    left = left_of(translated(command, 4, tmp_path / "recipe.yaml"))
    assert [*left] == [key]
    assert part in left[key]


def test_an_option_and_its_file_may_be_one_word(tmp_path):
    """Of DL-Art-School, too, whose train.py is called as BasicSR's."""
    (tmp_path / "div2k.yml").write_text(DIV2K)
    translation = translated(f"train.py -opt={tmp_path}/div2k.yml", None, tmp_path / "recipe.yaml")
    assert translation.system.name == "DL-Art-School"
    assert "-opt" not in left_of(translation)


def test_options_that_change_keys_of_a_file(tmp_path):
    (tmp_path / "esrgan.yml").write_text(ESRGAN)
    command = f"python basicsr/train.py -opt {tmp_path}/esrgan.yml --force_yml"
    translation = translated(f"{command} train:total_iter=1000 train:ema_decay=0.5", None, tmp_path / "recipe.yaml")
    assert translation.recipe["train"]["steps"] == 1000
    assert translation.recipe["train"]["ema"] == {"decay": 0.5}
    assert "--force_yml" not in left_of(translation)
    with pytest.raises(UserError, match="'train': expected `key:key=value`"):
        translated(f"{command} train", None, tmp_path / "recipe.yaml")


GEOMETRY = "data.train.scenes.augmentation.geometry"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("animal", {"data.common.side": 513, f"{GEOMETRY}.rescale.relative": [0.3, 2.0],
                    "data.common.heads.caf.bmin": 1.0, f"{GEOMETRY}.rotation.chance": 0.4}),
        ("apollo --apollo-extended-scale", {f"{GEOMETRY}.rescale.relative": [0.2, 2.0], f"{GEOMETRY}.ignore_small": 32,
                                            f"{GEOMETRY}.rotation.chance": 0.2}),
        ("crowdpose", {"data.common.side": 385, f"{GEOMETRY}.rotation.chance": None,
                       "data.common.heads.cif.bmin": None}),
        ("wholebody --wholebody-bmin 2", {f"{GEOMETRY}.rotation.chance": None, "data.common.heads.cif.bmin": 2.0}),
        ("nuscenes", {f"{GEOMETRY}.rotation.chance": None, f"{GEOMETRY}.horizontal_flip.chance": None}),
        # strides of their layers: 2 of the first convolution, none of the pool, 2 of three blocks
        ("cocokp --resnet-pool0-stride=2", {"data.common.heads.cif.stride": 32}),
        ("cocokp --resnet-input-conv-stride=1", {"data.common.heads.cif.stride": 8}),
        ("cocokp --resnet-remove-last-block", {"data.common.heads.cif.stride": 8}),
        ("cocokp --fix-batch-norm 0", {"callbacks.norms.batch_norms_after": 0}),
    ],
)  # fmt: skip
def test_a_training_of_openpifpaf_is_theirs(options, wanted, tmp_path):
    command = f"openpifpaf.train --basenet=resnet50 --dataset={options}"
    recipe = translated(command, 4, tmp_path / "recipe.yaml").recipe
    check_recipe(recipe, tmp_path / "recipe.yaml")
    found = dict(leaves(recipe))
    assert {key: found.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("options", "side", "everything", "left"),
    [
        ("wholebody --wholebody-eval-long-edge=321 --wholebody-no-eval-annotation-filter", 321, True, []),
        ("animal", 641, False, []),  # which has 0, their own size
        ("cocokp --coco-eval-long-edge=0", 641, False, ["--coco-eval-long-edge"]),
    ],
)
def test_an_evaluation_of_openpifpaf_is_theirs(options, side, everything, left, tmp_path):
    command = f"openpifpaf.eval --checkpoint=resnet50 --dataset={options}"
    translation = translated(command, 4, tmp_path / "recipe.yaml")
    scenes = translation.recipe["evaluate"]["data"]["scenes"]
    assert (scenes["side"], scenes["keep_empty"]) == (side, everything)
    assert [*left_of(translation)] == left
    assert any("at their own size there" in one for one in translation.remarks) == (side == 641)


def test_a_profile_is_a_file_there(tmp_path):
    for option in ("--profile trace.json", "--profile=trace.json"):
        translation = translated(f"openpifpaf.train --basenet=resnet50 {option}", 4, tmp_path / "recipe.yaml")
        assert translation.recipe["runtime"]["timing"] is True
        assert not translation.listed()


@pytest.mark.parametrize(("dataset", "told"), [("crowdpose", True), ("cocokp", False)])
def test_the_jitter_of_crowdpose_is_told(dataset, told, tmp_path):
    command = f"openpifpaf.train --basenet=resnet50 --dataset={dataset}"
    remarks = translated(command, 4, tmp_path / "recipe.yaml").remarks
    assert any("joints move at random by up to 0.5 pixels" in one for one in remarks) == told


@pytest.mark.parametrize(
    ("options", "file", "remarks"),
    [
        ("", "shufflenetv2k16.pkl", 2),
        ("--checkpoint=shufflenetv2k30", "shufflenetv2k30.pkl", 2),
        ("--checkpoint=out/mine.pkl.epoch100 --epochs=120", "out/mine.pkl.epoch100", 1),
    ],
)
def test_a_checkpoint_of_openpifpaf_is_imported(options, file, remarks, tmp_path):
    translation = translated(f"openpifpaf.train --dataset=cocokp {options}", None, tmp_path / "recipe.yaml")
    (line,) = [one for there, one in translation.commands.items() if there.startswith(file)]
    assert line.startswith(f"figura import openpifpaf {file} --output weights/recipe/start/network.safetensors")
    assert len([one for one in translation.remarks if file in one]) == remarks
    assert "training goes on there, up to --epochs" in translation.remarks[-1]


@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        # torch's cosine annealing of T_max 50 epochs, which is periodic
        ("--lr_policy cosine --n_epochs 50", {"type": "Sine", "start": 0, "period": 200, "high": 1.0, "low": 0.0}),
        # their factor of the first epoch: 1 - 1 / (99 + 1)
        ("--n_epochs 0 --n_epochs_decay 99", {"type": "Linear", "start": 0, "end": 198, "from": 0.99, "to": 0.0}),
    ],
)
def test_a_rate_of_junyanz_is_theirs(options, schedule, tmp_path):
    translation = translated(f"{PIX2PIX} {options} --batch_size 2", 4, tmp_path / "recipe.yaml")
    assert translation.recipe["steps"]["G"]["lr_schedule"] == schedule


RAGAN = {f"{step}.judge_{n}_{end}": [name] for n, step in enumerate("GD")
         for end, name in (("real", "hq"), ("fake", "sr"))}  # fmt: skip
APART = {"D.judge_real": ["hq"], "D.judge_fake": ["sr"]}
PENALTY = {"judge.judge_points_gan": ["points_gan"], "generator.judge_1": ["gen_generator"]}


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        (f"{PIX2PIX} --norm batch",
         {"D.judge_real": ["x", "y"], "D.judge_fake": ["x", "fake"], "G.judge": ["x", "fake"]}),
        (f"{PIX2PIX} --norm instance", {"D.judge": ["x", "y", "fake"], "G.judge": ["x", "fake"]}),
        ("train.py --model cycle_gan --norm batch",
         {"G.judge_y": ["fake_y"], "G.judge_x": ["fake_x"], "D.judge_y_real": ["y"], "D.judge_y_fake": ["earlier_y"],
          "D.judge_x_real": ["x"], "D.judge_x_fake": ["earlier_x"]}),
        (ESRGAN, {"G.judge_real": ["hq"], "G.judge_fake": ["sr"], **APART}),
        (ESRGAN.replace("ESRGANModel", "SRGANModel"), {"G.judge": ["sr"], **APART}),
        (REAL, {"G.judge": ["sr"], "D.judge": ["hq", "sr"]}),
        (DLAS, RAGAN),
        (DIV2K, {"judge.judge_0": ["hq", "gen"], **PENALTY}),
        (DIV2K.replace("_gn,", ","), {"judge.judge_0_real": ["hq"], "judge.judge_0_fake": ["gen"], **PENALTY}),
    ],
)  # fmt: skip
def test_batch_norm_judges_real_and_fake_pictures_apart(source, calls, tmp_path):
    """As all of these programs do; else one call judges both, which is the same. No call is for nothing."""
    found = of_file(source, tmp_path) if "\n" in source else translated(source, 4, tmp_path / "recipe.yaml")
    recipe = found.recipe
    check_recipe(recipe, tmp_path / "recipe.yaml")
    judges = {name for name, entry in recipe["networks"].items() if "Discriminator" in entry["type"]}
    injectors = {
        f"{key}.{name}": one for key, step in recipe["steps"].items() for name, one in step["injectors"].items()
    }
    assert {key: [*one["inputs"].values()] for key, one in injectors.items() if one.get("network") in judges} == calls


def test_a_folder_whose_name_is_a_number_stays_one(tmp_path):
    translation = translated("train.py --dataroot 2017 --model pix2pix", 4, tmp_path / "recipe.yaml")
    assert "copy 2017 to data/raw/recipe" in translation.commands


def test_norms_of_several_processes_are_the_norms(tmp_path):
    recipe = translated(f"{PIX2PIX} --norm sync_batch", 4, tmp_path / "recipe.yaml").recipe
    assert {one["norm"] for one in recipe["networks"].values()} == {"batch"}


def test_a_choice_of_the_wrong_kind_is_refused(tmp_path):
    with pytest.raises(UserError, match="--direction: found 3"):
        translated(f"{PIX2PIX} --direction 3", 4, tmp_path / "recipe.yaml")
