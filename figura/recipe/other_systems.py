"""Hints for converts: figura's name of another trainer's key or type, where the nearest spelling would mislead.

The systems: DL-Art-School, OpenPifPaf (its flags, with underscores), edflow and VUNet's port, NectarGAN and junyanz'
pix2pix, PyTorch's schedulers and optimizers.
"""

from figura.base.errors import REPRO

HINTS: dict[str, dict[str, str]] = {
    "key": {
        "extends _base_ defaults": (
            "`extends` in a section or an entry, as in `losses: {extends: recipes/pose.yaml#losses}`"
        ),
        # duration and learning rate
        "niter n_iter max_iter max_steps num_steps": "`train.steps` (iterations) or `train.epochs`",
        "num_epochs n_epochs": "`train.epochs`",
        "gen_lr disc_lr learning_rate": "`steps.<step>.optimizer.lr`",
        "gen_lr_steps lr_gamma lr_decay lr_decay_factor": (
            "`lr_schedule: {type: Decay, at: [50000, 100000], factor: 0.5, over: 0}` of a step, in iterations"
        ),
        "n_epochs_decay epochs_decay lr_decay_begin lr_decay_end": (
            "`lr_schedule: {type: Linear, start: 1000, end: 100000, from: 1.0, to: 0.0}` of a step, in iterations"
        ),
        "lr_policy lr_scheme default_lr_scheme scheduler lr_scheduler": "`steps.<step>.lr_schedule`",
        "separate_lr_schedules": "`steps.<step>.lr_schedule`; each step has its own",
        "warmup_iter warmup_steps lr_warm_up_epochs lr_warm_up_start_epoch lr_warm_up_factor": (
            "`lr_schedule: {type: WarmUp, steps: 500, from: 0.001, shape: exponential}` of a step, in iterations"
        ),
        "lr_warm_restarts": (
            "`lr_schedule: {type: CosineRestarts, periods: [1000, 2000], from: 1.0, to: 0.0}` of a step"
        ),
        "start_ramp_it end_ramp_it start_ramp_val end_ramp_val": (
            "`schedule: {type: Linear, start: 2000, end: 3500, from: 0.0, to: 1.0}` of the loss"
        ),
        # gradients, optimizers, precision
        "clip_grad_eps clip_grad_norm grad_clip gradient_clip_val max_grad_norm clip_grad_value": (
            "`clip: 1.0` of a step, the largest 2-norm of the gradient; `clip_value` limits each element"
        ),
        "mega_batch_factor gradient_accumulation_steps stride_apply": (
            "`train.accumulation`, the number of parts of a batch"
        ),
        "optimizer_params adam": "`optimizer: {type: torch.optim.Adam, lr: 1.0e-4}` of a step",
        "param_groups": "`groups` of a step: options by patterns of parameter names",
        "beta1 beta2 beta_1 beta_2": "`betas: [0.9, 0.999]` of the optimizer, whose first number is beta1",
        "adam_eps": "`eps` of the optimizer",
        "fp16 amp": "`train.precision: fp16` or `bf16`",
        "ema_enabled ema_rate": "`train.ema: {decay: 0.999}`",
        "auto_tune_mtl": "a network of its own that learns the weights",
        "fix_batch_norm freeze_batch_norm": (
            "`callbacks: {norms: {type: figura.callbacks.Freeze, network: NAME, batch_norms_after: 0}}`"
        ),
        "batch_size_optimizer find_batch_size": "`train.accumulation: 2`, which cuts a batch that does not fit in two",
        "checkpointing_enabled": "`networks.<network>.checkpointing: true`",
        # data
        "batch_size": (
            "`data.batch_size` of training, over all processes, or `evaluate.batch_size`, also of predictions"
        ),
        "n_workers num_workers loader_workers n_data_processes": "`runtime.workers`",
        "manual_seed random_seed": "`seed`, at the top of the recipe",
        "dataroot data_root": "`root` of a dataset",
        "datasets": "`data.train` and `data.validation`",
        "dataset_weights": "`weight` of an entry of `data.train`",
        "square_edge cocokp_square_edge cocodet_square_edge long_edge eval_long_edge": (
            "`side` of a dataset of scenes, of an entry of `evaluate.data`, or `predict.data.side`"
        ),
        "cocokp_upsample": "`upsample` of a head of the network, and `stride` of the dataset's heads",
        "cocokp_extended_scale": "`augmentation.geometry.rescale: {relative: [0.25, 2.0]}` of the dataset",
        "cocokp_orientation_invariant": "`augmentation.geometry.orientation_invariant: {chance: 0.1}` of the dataset",
        "cocokp_with_dense": "a head `{kind: caf, connections: dense}`, and `dense` of the injector that decodes",
        "h_flip_chance use_flip": "`augmentation.both.horizontal_flip: {chance: 0.5}` of the dataset",
        "no_flip": "no `horizontal_flip` in `augmentation` of the dataset",
        "spatial_size": "`image_size` of the dataset",
        # networks and initial weights
        "basenet": "`backbone: {name: shufflenetv2k16}` of the network",
        "input_nc output_nc": "`in_channels` and `out_channels` of the network",
        "ngf ndf": "`features` of the network",
        "pretrain_model_* pretrained_path resume_state continue_train load_epoch": (
            "`train.init_from: {run: runs/earlier}`, or `weights` of a network; a killed training resumes by itself"
        ),
        "strict_load": "no setting, weights are always loaded strictly",
        "which_model_G which_model_D which_model": "`type` of an entry of `networks`",
        # losses
        "lambda_* l1_weight feature_weight gan_weight loss_weight": "`weight` of an entry of `losses`",
        "criterion": "`type` of an entry of `losses`",
        "gan_type gan_mode": "`kind` of `images.Adversarial`: vanilla, lsgan, hinge, wgan, relativistic_average",
        # monitoring
        "val_freq val_interval": "`train.evaluate_every`, in iterations",
        "val_batches": "`train.evaluate_limit`, in examples",
        "test_batch_size": "`evaluate.batch_size`",
        "print_freq log_freq log_interval update_frequency": "`runtime.log_every`, in iterations",
        "display_freq visual_debug_rate example_save_rate visuals num_examples": (
            "`runtime.samples: {names: [lq, sr, hq], count: 4, every: 500}`"
        ),
        "save_checkpoint_freq ckpt_freq model_save_rate save_freq save_epoch_freq": (
            "`runtime.checkpoint_every`, in iterations; `runtime.resume_every` is for resume points"
        ),
        "tb_logger use_tb_logger use_wandb": "`runtime.trackers: [tensorboard, wandb]`",
        # of earlier versions of figura
        "frozen": (
            "`callbacks: {frozen: {type: figura.callbacks.Freeze, network: NAME, until: 1000, modules: [base_net]}}`"
        ),
        "requires": "no setting, a step is left out for batches that lack a name that its injectors read",
        "rate_scaling": "multiply `lr` of each `optimizer` yourself",
        "rollback recover": f"`train.max_nonfinite`, then a lower rate and `FIGURA_RESUME_ANYWAY=1 {REPRO}`",
        "elastic optical_distortion coarse_dropout motion_blur gamma": (
            "`further`, which takes transforms of the package albumentations by name"
        ),
        "gpu_ids": "no setting, CUDA_VISIBLE_DEVICES and FIGURA_PROCESSES choose GPUs",
        "device": "no setting, a GPU is used where there is one",
    },
    "schedule": {
        "MultiStepLR StepLR": "`{type: Decay, at: [30000, 60000], factor: 0.1, over: 0}`, in iterations",
        "ConstantLR": "`{type: Step, at: [500], values: [0.1, 1.0]}`, in iterations",
        "LinearLR linear_decay": "`{type: Linear, start: 0, end: 10000, from: 1.0, to: 0.0}`, in iterations",
        "ExponentialLR": "`{type: Exponential, start: 0, end: 10000, from: 1.0, to: 0.01}`, in iterations",
        "CosineAnnealingLR": "`{type: Cosine, start: 0, end: 10000, from: 1.0, to: 0.0}`, in iterations",
        "CosineAnnealingLR_Restart CosineAnnealingWarmRestarts": (
            "`{type: CosineRestarts, periods: [1000, 2000], from: 1.0, to: 0.0}`, in iterations"
        ),
        "OneCycleLR": "`{type: WarmUp, steps: 500, then: {type: Cosine, start: 500, end: 10000, from: 1.0, to: 0.0}}`",
        "CyclicLR": "`{type: Sine, start: 0, period: 1000, high: 1.0, low: 0.1}`, in iterations",
        "SequentialLR": "`{type: WarmUp, steps: 500, then: {...}}`, or a `Product`",
        "ChainedScheduler": "`{type: Product, of: {one: {...}, other: {...}}}`",
        "LambdaLR MultiplicativeLR PolynomialLR Polynomial": (
            "a `Schedule` of your own by its dotted name, a pure function of the iteration"
        ),
        "ReduceLROnPlateau": "nothing that looks at losses: schedules are functions of the iteration; see `Decay`",
        "fixed": "`{type: Constant, value: 1.0}`",
        "sinusoidal": "`{type: Sine, start: 0, period: 1000, high: 1.0, low: 0.0}`, in iterations",
    },
    "loss": {
        "pix": "`images.L1`, `images.L2` or `images.Cosine`",
        "l1 L1Loss": "`images.L1`",
        "l2 mse MSELoss": "`images.L2`",
        "SmoothL1Loss SmoothL1": "`torch.nn.SmoothL1Loss`",
        "BCEWithLogitsLoss bce BinaryCrossEntropy": "`torch.nn.BCEWithLogitsLoss`",
        "BCELoss": "`torch.nn.BCEWithLogitsLoss`, of logits",
        "CrossEntropyLoss cross_entropy CrossEntropy": "`torch.nn.CrossEntropyLoss`",
        "feature vgg": "`images.Perceptual`",
        "generator_gan": "`images.Adversarial` with `role: generator`",
        "discriminator_gan": "`images.Adversarial` with `role: discriminator`",
        "gradient_penalty": "`images.GradientPenalty`",
        "direct": "`images.Direct`",
        "distillation": "a `Loss` of your own (docs/your_own_code.md)",
        "sr_pix": "`images.L2`, or `images.FocalFrequency`",
    },
    "injector": {
        "generator discriminator": "`Forward`, with `network`",
        "add_noise": "`Noise`, then `Sum`",
        "scheduled_scalar": "a schedule where the number stands",
        "interpolate": "`Resize`",
        "for_each ForEach": "one entry for each name",
        (
            "grey indices_extractor squeeze batch_rotate mix_and_label image_patch random_crop margin_removal "
            "concatenate Augment Choose Clamp Concatenate Crop Grey Multiply Normalise Orient Pad Roll Select Stack"
        ): "an injector of your own, a few lines from `figura.interfaces.Operation` (docs/your_own_code.md)",
        "sr_diffs": "`Resize`, then `Sum`",
        "normalize denormalize": (
            "`Sum`, or by channel an injector of your own, from `figura.interfaces.Operation` (docs/your_own_code.md)"
        ),
    },
    "optimizer": {
        "adam Adam": "`torch.optim.Adam`",
        "adamw AdamW": "`torch.optim.AdamW`",
        "sgd SGD": "`torch.optim.SGD`",
        "RMSprop": "`torch.optim.RMSprop`",
        "lamb": "`pytorch_optimizer.Lamb`, of the extra `optimizers`",
        "lars": "`pytorch_optimizer.LARS`, of the extra `optimizers`",
    },
}
"""By kind of word: the words of other systems, and what is here instead. `lambda_*` is any word that begins so."""
WORDS = {what: {word: hint for words, hint in rows.items() for word in words.split()} for what, rows in HINTS.items()}


def called_here(what: str, word: str) -> str | None:
    """Return figura's name for another system's `word`, or None; `what` is its kind: `key`, `argument of X`, `loss`."""
    word = word.rpartition(".")[2].replace("-", "_")
    rows = WORDS.get("key" if what.startswith("argument of ") else what, {})
    prefixes = (hint for key, hint in rows.items() if key.endswith("*") and word.startswith(key[:-1]))
    return rows.get(word) or next(prefixes, None)
