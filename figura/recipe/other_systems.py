"""Hints for converts: figura's name of another trainer's key or type, where the nearest spelling would mislead.

The systems: DL-Art-School, OpenPifPaf (its flags, with underscores), edflow and VUNet's port, NectarGAN and junyanz'
pix2pix, PyTorch's schedulers and optimizers.
"""

BETAS = "`betas: [0.9, 0.999]` of the optimizer, whose first number is beta1"
CLIP = "`clip: 1.0` of a step, the largest 2-norm of the gradient; `clip_value` limits each element"
EMA = "`train.ema: {decay: 0.999}`"
FLIP = "`augmentation.both.horizontal_flip: {chance: 0.5}` of the dataset"
FREEZE_NORMS = "`callbacks: {norms: {type: figura.callbacks.Freeze, network: NAME, batch_norms_after: 0}}`"
OPERATION = "an injector of your own, a few lines from `figura.interfaces.Operation` (docs/your_own_code.md)"
RATE = "`steps.<step>.optimizer.lr`"
RATES = "`steps.<step>.lr_schedule`"
ROLLBACK = "`train.max_nonfinite`, then a lower rate and `FIGURA_RESUME_ANYWAY=1 dvc repro`"
SAVE = "`runtime.checkpoint_every`, in iterations; `runtime.resume_every` is for resume points"
SEED = "`seed`, at the top of the recipe"
SIDE = "`side` of a dataset of scenes"
START = "`train.init_from: {run: runs/earlier}`, or `weights` of a network; a killed training resumes by itself"
STEPS = "`train.steps` (iterations) or `train.epochs`"
WARM_UP = "`lr_schedule: {type: WarmUp, steps: 500}` of a step"
WEIGHT = "`weight` of an entry of `losses`"

KEYS = {
    # duration and learning rate
    "niter": STEPS,
    "n_iter": STEPS,
    "max_iter": STEPS,
    "max_steps": STEPS,
    "num_steps": STEPS,
    "num_epochs": "`train.epochs`",
    "n_epochs": "`train.epochs`",
    "n_epochs_decay": "`lr_schedule: {type: Linear, start: ..., end: ..., from: 1.0, to: 0.0}` of a step",
    "epochs_decay": "`lr_schedule: {type: Linear, start: ..., end: ..., from: 1.0, to: 0.0}` of a step",
    "gen_lr": RATE,
    "disc_lr": RATE,
    "learning_rate": RATE,
    "gen_lr_steps": "`lr_schedule: {type: Decay, at: [50000, 100000], factor: 0.5, over: 0}` of a step",
    "lr_gamma": "`factor` of `lr_schedule: {type: Decay, at: [50000], factor: 0.5, over: 0}` of a step",
    "lr_decay": "`lr_schedule: {type: Decay, at: [...], factor: 0.1, over: 0}` of a step, in iterations",
    "lr_decay_factor": "`factor` of `lr_schedule: {type: Decay, at: [...], factor: 0.1, over: 0}` of a step",
    "lr_decay_begin": "`lr_schedule: {type: Linear, start: 1000, end: 100000, from: 1.0, to: 0.0}` of a step",
    "lr_decay_end": "`lr_schedule: {type: Linear, start: 1000, end: 100000, from: 1.0, to: 0.0}` of a step",
    "lr_policy": RATES,
    "lr_scheme": RATES,
    "default_lr_scheme": RATES,
    "scheduler": RATES,
    "lr_scheduler": RATES,
    "separate_lr_schedules": RATES + "; each step has its own",
    "warmup_iter": WARM_UP,
    "warmup_steps": WARM_UP,
    "lr_warm_up_epochs": WARM_UP + ", in iterations",
    "lr_warm_up_factor": "`from` of `{type: WarmUp, steps: 500, from: 0.001, shape: exponential}`",
    "lr_warm_up_start_epoch": WARM_UP + ", in iterations",
    "lr_warm_restarts": "`lr_schedule: {type: CosineRestarts, periods: [1000, 2000], from: 1.0, to: 0.0}` of a step",
    "start_ramp_it": "`schedule: {type: Linear, start: 2000, end: 3500, from: 0.0, to: 1.0}` of the loss",
    "end_ramp_it": "`schedule: {type: Linear, start: 2000, end: 3500, from: 0.0, to: 1.0}` of the loss",
    "start_ramp_val": "`from` of `schedule: {type: Linear, start: 2000, end: 3500, from: 0.0, to: 1.0}` of the loss",
    "end_ramp_val": "`to` of `schedule: {type: Linear, start: 2000, end: 3500, from: 0.0, to: 1.0}` of the loss",
    # gradients, optimizers, precision
    "clip_grad_eps": CLIP,
    "clip_grad_norm": CLIP,
    "grad_clip": CLIP,
    "gradient_clip_val": CLIP,
    "max_grad_norm": CLIP,
    "clip_grad_value": "`clip_value` of a step, the largest absolute value of each element",
    "mega_batch_factor": "`train.accumulation`, the number of parts of a batch",
    "gradient_accumulation_steps": "`train.accumulation`, the number of parts of a batch",
    "stride_apply": "`train.accumulation`, the number of parts of a batch",
    "optimizer_params": "`optimizer: {type: torch.optim.Adam, lr: 1.0e-4}` of a step",
    "adam": "`optimizer: {type: torch.optim.Adam, lr: 1.0e-4}` of a step",
    "param_groups": "`groups` of a step: options by patterns of parameter names",
    "beta1": BETAS,
    "beta2": BETAS,
    "beta_1": BETAS,
    "beta_2": BETAS,
    "adam_eps": "`eps` of the optimizer",
    "fp16": "`train.precision: fp16`",
    "amp": "`train.precision: fp16` or `bf16`",
    "ema_enabled": EMA,
    "ema_rate": EMA,
    "auto_tune_mtl": "a network of its own that learns the weights",
    "fix_batch_norm": FREEZE_NORMS,
    # of earlier versions of figura
    "freeze_batch_norm": FREEZE_NORMS,
    "frozen": "`callbacks: {frozen: {type: figura.callbacks.Freeze, network: NAME, until: 1000, modules: [base_net]}}`",
    "rate_scaling": "multiply `lr` of each `optimizer` yourself",
    "rollback": ROLLBACK,
    "recover": ROLLBACK,
    "batch_size_optimizer": "`train.find_batch_size: true`, which cuts batches that do not fit",
    "checkpointing_enabled": "`networks.<network>.checkpointing: true`",
    # data
    "batch_size": "`data.batch_size` of training, over all processes, or `evaluate.batch_size`, also of predictions",
    "n_workers": "`runtime.workers`",
    "num_workers": "`runtime.workers`",
    "loader_workers": "`runtime.workers`",
    "n_data_processes": "`runtime.workers`",
    "manual_seed": SEED,
    "random_seed": SEED,
    "dataroot": "`root` of a dataset",
    "data_root": "`root` of a dataset",
    "datasets": "`data.train` and `data.validation`",
    "dataset_weights": "`weight` of an entry of `data.train`",
    "square_edge": SIDE,
    "cocokp_square_edge": SIDE,
    "cocodet_square_edge": SIDE,
    "long_edge": "`predict.data.side`, or `side` of an entry of `evaluate.data`",
    "eval_long_edge": "`side` of an entry of `evaluate.data`",
    "cocokp_upsample": "`upsample` of a head of the network, and `stride` of the dataset's heads",
    "cocokp_extended_scale": "`augmentation.geometry.rescale: {relative: [0.25, 2.0]}` of the dataset",
    "cocokp_orientation_invariant": "`augmentation.geometry.orientation_invariant: {chance: 0.1}` of the dataset",
    "cocokp_with_dense": "a head `{kind: caf, connections: dense}`, and `dense` of the injector that decodes",
    "h_flip_chance": FLIP,
    "use_flip": FLIP,
    "no_flip": "no `horizontal_flip` in `augmentation` of the dataset",
    "spatial_size": "`image_size` of the dataset",
    # networks and initial weights
    "basenet": "`backbone: {name: shufflenetv2k16}` of the network",
    "input_nc": "`in_channels` of the network",
    "output_nc": "`out_channels` of the network",
    "ngf": "`features` of the generator",
    "ndf": "`features` of the discriminator",
    "pretrain_model_*": START,
    "pretrained_path": START,
    "resume_state": START,
    "continue_train": START,
    "load_epoch": START,
    "strict_load": "no setting, weights are always loaded strictly",
    "which_model_G": "`type` of an entry of `networks`",
    "which_model_D": "`type` of an entry of `networks`",
    "which_model": "`type` of an entry of `networks`",
    # losses
    "lambda_*": WEIGHT,
    "l1_weight": WEIGHT,
    "feature_weight": WEIGHT,
    "gan_weight": WEIGHT,
    "loss_weight": WEIGHT,
    "criterion": "`type` of an entry of `losses`",
    "gan_type": "`kind` of `images.Adversarial`: vanilla, lsgan, hinge, wgan, relativistic_average",
    "gan_mode": "`kind` of `images.Adversarial`: vanilla, lsgan, hinge, wgan, relativistic_average",
    # monitoring
    "val_freq": "`train.evaluate_every`, in iterations",
    "val_interval": "`train.evaluate_every`, in iterations",
    "val_batches": "`train.evaluate_limit`, in examples",
    "test_batch_size": "`evaluate.batch_size`",
    "print_freq": "`runtime.log_every`, in iterations",
    "log_freq": "`runtime.log_every`, in iterations",
    "log_interval": "`runtime.log_every`, in iterations",
    "update_frequency": "`runtime.log_every`, in iterations",
    "display_freq": "`runtime.samples`, with `every`",
    "visual_debug_rate": "`runtime.samples`, with `every`",
    "example_save_rate": "`runtime.samples`, with `every`",
    "visuals": "`runtime.samples: {names: [lq, sr, hq], count: 4}`",
    "num_examples": "`count` of `runtime.samples`",
    "save_checkpoint_freq": SAVE,
    "ckpt_freq": SAVE,
    "model_save_rate": SAVE,
    "save_freq": SAVE,
    "save_epoch_freq": SAVE,
    "tb_logger": "`runtime.trackers: [tensorboard]`",
    "use_tb_logger": "`runtime.trackers: [tensorboard]`",
    "use_wandb": "`runtime.trackers: [wandb]`",
    "gpu_ids": "no setting, CUDA_VISIBLE_DEVICES and FIGURA_PROCESSES choose GPUs",
    "device": "no setting, a GPU is used where there is one",
}

DECAY = "`{type: Decay, at: [30000, 60000], factor: 0.1, over: 0}`, in iterations"
COSINE = "`{type: Cosine, start: 0, end: 10000, from: 1.0, to: 0.0}`, in iterations"
RESTARTS = "`{type: CosineRestarts, periods: [1000, 2000], from: 1.0, to: 0.0}`, in iterations"
LINEAR = "`{type: Linear, start: 0, end: 10000, from: 1.0, to: 0.0}`, in iterations"
FACTOR = "a `Schedule` of your own by its dotted name, a pure function of the iteration"
SCHEDULES = {
    "MultiStepLR": DECAY,
    "StepLR": DECAY,
    "ConstantLR": "`{type: Step, at: [500], values: [0.1, 1.0]}`, in iterations",
    "LinearLR": LINEAR,
    "linear_decay": LINEAR,
    "PolynomialLR": "`{type: Polynomial, start: 0, end: 10000, from: 1.0, to: 0.0, power: 0.9}`, in iterations",
    "ExponentialLR": "`{type: Exponential, start: 0, end: 10000, from: 1.0, to: 0.01}`, in iterations",
    "CosineAnnealingLR": COSINE,
    "CosineAnnealingLR_Restart": RESTARTS,
    "CosineAnnealingWarmRestarts": RESTARTS,
    "OneCycleLR": "`{type: WarmUp, steps: 500, then: {type: Cosine, start: 500, end: 10000, from: 1.0, to: 0.0}}`",
    "CyclicLR": "`{type: Sine, start: 0, period: 1000, high: 1.0, low: 0.1}`, in iterations",
    "SequentialLR": "`{type: WarmUp, steps: 500, then: {...}}`, or a `Product`",
    "ChainedScheduler": "`{type: Product, of: {one: {...}, other: {...}}}`",
    "LambdaLR": FACTOR,
    "MultiplicativeLR": FACTOR,
    "ReduceLROnPlateau": "nothing that looks at losses: schedules are functions of the iteration; see `Decay`",
    "fixed": "`{type: Constant, value: 1.0}`",
    "sinusoidal": "`{type: Sine, start: 0, period: 1000, high: 1.0, low: 0.0}`, in iterations",
}
LOSSES = {
    "pix": "`images.L1`, `images.L2` or `images.Cosine`",
    "l1": "`images.L1`",
    "l2": "`images.L2`",
    "mse": "`images.L2`",
    "L1Loss": "`images.L1`",
    "MSELoss": "`images.L2`",
    "SmoothL1Loss": "`images.SmoothL1`",
    "BCEWithLogitsLoss": "`images.BinaryCrossEntropy`",
    "BCELoss": "`images.BinaryCrossEntropy`, of logits",
    "bce": "`images.BinaryCrossEntropy`",
    "CrossEntropyLoss": "`images.CrossEntropy`",
    "cross_entropy": "`images.CrossEntropy`",
    "feature": "`images.Perceptual`",
    "vgg": "`images.Perceptual`",
    "generator_gan": "`images.Adversarial` with `role: generator`",
    "discriminator_gan": "`images.Adversarial` with `role: discriminator`",
    "gradient_penalty": "`images.GradientPenalty`",
    "direct": "`images.Direct`",
    "distillation": "`images.Distillation`",
    "sr_pix": "`images.L2`, or `images.FocalFrequency`",
}
INJECTORS = {
    "generator": "`Forward`, with `network`",
    "discriminator": "`Forward`, with `network`",
    "add_noise": "`Noise`, then `Sum`",
    "scheduled_scalar": "a schedule where the number stands",
    "interpolate": "`Resize`",
    "grey": OPERATION,
    "image_patch": "`Crop`",
    "random_crop": "`Crop`",
    "margin_removal": "`Crop`",
    "concatenate": "`Concatenate`",
    "for_each": "one entry for each name",
    "indices_extractor": OPERATION,
    "squeeze": OPERATION,
    "batch_rotate": OPERATION,
    "mix_and_label": OPERATION,
    "sr_diffs": "`Resize`, then `Sum`",
    "normalize": "`Sum`, or by channel " + OPERATION,
    "denormalize": "`Sum`, or by channel " + OPERATION,
    # of earlier versions of figura
    "ForEach": "one entry for each name",
    **dict.fromkeys(
        ("Augment", "Choose", "Clamp", "Grey", "Multiply", "Normalise", "Orient", "Pad", "Roll", "Select", "Stack"),
        OPERATION,
    ),
}
OPTIMIZERS = {
    "adam": "`torch.optim.Adam`",
    "Adam": "`torch.optim.Adam`",
    "adamw": "`torch.optim.AdamW`",
    "AdamW": "`torch.optim.AdamW`",
    "sgd": "`torch.optim.SGD`",
    "SGD": "`torch.optim.SGD`",
    "RMSprop": "`torch.optim.RMSprop`",
    "lamb": "`pytorch_optimizer.Lamb`, of the extra `optimizers`",
    "lars": "`pytorch_optimizer.LARS`, of the extra `optimizers`",
}
TYPES = {"schedule": SCHEDULES, "loss": LOSSES, "injector": INJECTORS, "optimizer": OPTIMIZERS}


def called_here(what: str, word: str) -> str | None:
    """Return figura's name for another system's `word`, or None; `what` is its kind: `key`, `argument of X`, `loss`."""
    word = word.rpartition(".")[2].replace("-", "_")
    if what != "key" and not what.startswith("argument of "):
        return TYPES.get(what, {}).get(word)
    prefixes = (hint for key, hint in KEYS.items() if key.endswith("*") and word.startswith(key[:-1]))
    return KEYS.get(word) or next(prefixes, None)
