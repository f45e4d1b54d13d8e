"""The schema of a recipe: the sections of `params.yaml` and `recipes/*.yaml`, and the keys of each.

`check.py` checks what the names mean. What a recipe is about has no default: its data, networks, losses, rates and
number of steps. Of other keys, the default is that the feature is off, or what nearly all recipes want. Another default
is a change of code, which reruns stages.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from figura.recipe.gates import Gate

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Count = Annotated[int, Field(ge=1, le=10**9)]
Position = Annotated[int, Field(ge=0, le=10**9)]
BatchSize = Annotated[int, Field(ge=1, le=10**6)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Precision = Literal["no", "fp16", "bf16"]
Format = Literal["image", "mask", "array", "number", "records"]
"""How a dump stores a name; see `figura/dump.py`."""
RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train", "callbacks")
"""The sections that training reads."""
ERROR_KEY = "error"  # a metrics file with this key, at any depth, counts as unreadable


class Section(BaseModel):
    """A closed set of keys, immutable once read. `renamed` maps keys of earlier versions to their new names."""

    renamed: ClassVar[dict[str, str]] = {}
    model_config = ConfigDict(extra="forbid", frozen=True)


class Declaration(Section):
    """`type` names a class (types.py looks it up); the other keys are its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)
    type: str

    @property
    def arguments(self) -> dict[str, Any]:
        """All keys except the fields of the declaration itself."""
        return self.model_extra or {}


class DatasetEntry(Declaration):
    """One dataset; in a mixture, the number of its batches is proportional to `weight`."""

    weight: Positive = 1.0


class TrainingDataset(DatasetEntry):
    """One dataset to train on; effective weight = `weight` x schedule(step), which may be 0 at times."""

    schedule: Declaration | None = None


class Data(Section):
    """Where examples come from; `batch_size` is that of all ranks together.

    `common`, a map of arguments that all entries share, may stand beside them (`completion.py` distributes it).
    """

    train: Annotated[dict[Name, TrainingDataset], Field(min_length=1)]
    validation: Annotated[dict[Name, DatasetEntry], Field(min_length=1)]
    batch_size: BatchSize


OWN = "own"
"""The `weights` of a network that another package builds with its own weights, such as `pretrained: true`."""


class NetworkEntry(Declaration):
    """One network; `weights` is a safetensors file to start from, or `own`: those that its constructor gives it.

    `checkpointing` saves memory: its blocks (true) or the modules of these names or patterns are computed again in the
    backward pass instead of being stored. Results stay the same (`engine/checkpointing.py`).
    """

    weights: str | None = None
    checkpointing: bool | list[str] = False


class Gated(Section):
    """Runs in iterations t with `after` <= t < `before` and (t - `after`) divisible by `every`.

    A validation pass applies `after` and `before` to the current iteration and ignores `every`.
    """

    every: Count = 1
    after: Position = 0
    before: Count | None = None

    @property
    def gate(self) -> Gate:
        """The gate that these keys describe."""
        return Gate(self.every, self.after, self.before)

    @model_validator(mode="after")
    def _runs(self) -> "Gated":
        if self.before is not None and self.before <= self.after:
            raise ValueError(f"after {self.after} and before {self.before}: it would never run")
        return self


class InjectorEntry(Gated, Declaration):
    """One injector of a step; outside its gate it adds nothing. `only` confines it to training or to evaluation.

    Several injectors may add the same name if no two of them ever run together.
    """

    only: Literal["training", "evaluation"] | None = None


class LossEntry(Gated, Declaration):
    """One loss: `inputs` maps its roles to names of the state; effective weight = `weight` x schedule(step).

    Outside its gate it is not computed.
    """

    inputs: dict[Name, Name]
    weight: Number
    schedule: Declaration | None = None
    step: Name | None = None


class Group(Section):
    """Options of an optimizer (`weight_decay: 0.0`) for parameters whose name matches `pattern` (`re.search`)."""

    model_config = ConfigDict(extra="allow", frozen=True)
    pattern: str


class StepEntry(Gated):
    """One optimization: injectors in their order, the losses that name the step, one backward, one update.

    The step is skipped for batches that lack a name that its injectors read (mixtures of datasets). Tensors named in
    `detach` carry no gradient into it. `accumulation` is the number of parts that its batch is cut into (default:
    `train.accumulation`); steps share the names they add only if they have the same number of parts. `clip_value`
    limits the absolute value of each element of the gradient; after that, `clip` limits the 2-norm of the whole
    gradient. `groups` set other optimizer options for parameters whose name (`network.layer.weight`) matches a pattern;
    the first match counts.
    """

    trains: Annotated[list[Name], Field(min_length=1)]
    optimizer: Declaration
    lr_schedule: Declaration | None = None
    injectors: dict[Name, InjectorEntry]
    clip: Positive | None = None
    clip_value: Positive | None = None
    groups: dict[Name, Group] = {}
    detach: list[Name] = []
    accumulation: Count | None = None


class Ema(Section):
    """Exponential moving average of the weights; evaluations and outputs then use the averages.

    With `warmup`, update t of the average (0, which copies the weights, then 1, ...) decays by at most
    (1 + t) / (10 + t), as in TensorFlow's ExponentialMovingAverage, so that the first weights are soon forgotten.
    """

    decay: Annotated[float, Field(gt=0, lt=1)]
    warmup: bool = False

    def decay_at(self, update: int) -> float:
        """Return the decay of an update of the average."""
        return min(self.decay, (1 + update) / (10 + update)) if self.warmup else self.decay


class Keep(Section):
    """`model/` gets the weights of the evaluation with the best `metric`, not the last ones; of equal ones the first.

    `metric` is a number of `history/validation.csv`: a loss, a component (`caf.vector`), or `<callback>.<number>`. At
    the end, `checkpoints/` gets the weights of the `best` evaluations, and the last ones (`training/best.py`).
    """

    metric: str
    better: Literal["lower", "higher"]
    best: Count = 1


class Stop(Section):
    """Training ends after `patience` evaluations in a row whose `keep.metric` is not better than the best before."""

    patience: Count


class InitFrom(Section):
    """Start from the weights of an earlier run: of all networks, or of the named ones."""

    run: str
    networks: Annotated[list[Name], Field(min_length=1)] | None = None


class Train(Section):
    """How long and how to train, in iterations (`epochs` is converted once). No key depends on the number of ranks.

    `accumulation` cuts a batch into that many parts and adds up their gradients. Results then differ by rounding, by
    noise (drawn for each part), by batch norm and the means of relativistic losses (computed over a part), and by
    spectral norm (a power iteration for each part). Without `sync_batch_norm` each rank
    normalises its own shard of a batch. `try` runs a few steps of everything, to see whether it runs (`trial.py`).
    `compile` trains with compiled networks (`torch.compile`), whose results differ by rounding.
    """

    steps: Count | None = None
    epochs: Count | None = None
    shares_of: Count | None = Field(default=None, exclude=True, description="iterations, 100 %; left out: steps")
    precision: Precision = Field(default="no", description="of networks; losses are float32 (engine/precision.py)")
    ema: Ema | None = None
    init_from: InitFrom | None = None
    accumulation: Count = 1
    sync_batch_norm: bool = True
    compile: bool = False
    evaluate_every: Count | None = Field(default=None, description="iterations; left out: after each epoch")
    evaluate_limit: Count | None = Field(default=None, description="evenly spaced examples; left out: all")
    record_every: Count
    max_nonfinite: Count = Field(default=20, description="stop after this many skipped updates in a row")
    keep: Keep | None = Field(default=None, description="left out: `model/` gets the last weights")
    stop: Stop | None = Field(default=None, description="goes by the metric of `keep`")
    try_: bool = Field(default=False, alias="try")

    @model_validator(mode="after")
    def _agree(self) -> "Train":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("write either steps or epochs")
        if self.stop is not None and self.keep is None:
            raise ValueError("stop goes by the metric of keep, which is missing")
        return self

    def iterations(self, of_epoch: int) -> int:
        """Return how many iterations training takes, given those of an epoch."""
        return self.steps or (self.epochs or 0) * of_epoch

    def evaluation_interval(self, of_epoch: int) -> int:
        """Return the iterations from one evaluation to the next, given those of an epoch."""
        return self.evaluate_every or of_epoch


class Mode(Section):
    """One way to run the trained networks over `evaluate.data`, `repeat` times for each example."""

    injectors: Annotated[dict[Name, Declaration], Field(min_length=1)]
    save: dict[Name, Format]
    repeat: Count = 1


class Grid(Section):
    """Pair every row with every column: of `size` examples each, `rows` and `columns` name what they contribute."""

    rows: Annotated[list[Name], Field(min_length=1)]
    columns: Annotated[list[Name], Field(min_length=1)]
    size: Count
    injectors: Annotated[dict[Name, Declaration], Field(min_length=1)]
    save: dict[Name, Format]


class Average(Section):
    """The mean of a name over at most `examples` evenly spaced examples of the training split, without augmentation.

    Of the first training dataset. Its `split` is read as the dataset of the same name in `evaluate.data` reads its own;
    datasets without an argument `split` are read as in training.
    """

    of: Name
    examples: Count


class Evaluate(Section):
    """What eval-dump writes: `inputs` of the examples themselves, `modes`, `grids` and `averages`.

    `data` are the datasets to run on, by default `data.validation`; an entry of a name there inherits its keys, so that
    `{scenes: {side: 641}}` is enough to judge at another size (`completion.py`).
    `timing` adds `ms.<injector>` (milliseconds an example) to the rows; the hash of the dump then differs every run.
    """

    renamed = {"crosses": "grids"}
    data: dict[Name, DatasetEntry] = {}
    batch_size: BatchSize
    timing: bool = False
    inputs: dict[Name, Format]
    modes: Annotated[dict[Name, Mode], Field(min_length=1)]
    grids: dict[Name, Grid] = {}
    averages: dict[Name, Average] = {}


class Predict(Section):
    """How pictures from anywhere become predictions: `data` makes examples of them, a mode of `evaluate` runs on these.

    Of the mode's injectors, only those run that `save` needs; then `injectors` run. `save` says what to write for each
    example; `grid` names one of `evaluate.grids` to draw. `compare` judges saved pictures, by name, against the true
    ones, and shows both, where the photos know them.
    """

    renamed = {"cross": "grid"}
    data: Declaration
    mode: Name
    injectors: dict[Name, Declaration] = {}
    save: Annotated[dict[Name, Literal["image", "mask", "array", "records"]], Field(min_length=1)]
    grid: Name | None = None
    compare: dict[Name, Declaration] = {}


class Headline(Section):
    """One entry of `metrics.summary`: a metric, what to see it `beside` (a baseline's metric), and which is `better`.

    Both metrics are dotted keys of the full figures: a score of `metrics.scores`, then what it calls the metric, such
    as `reconstruction.l1_person`.
    """

    metric: str
    beside: str | None = None
    better: Literal["lower", "higher"]


class Metrics(Section):
    """What to compute and draw from the dump alone; intervals come from `bootstrap` resamples of the examples.

    `summary` are the few numbers that tables of metrics show (`metrics/<recipe>.json`), by a short name; left out, they
    show none.
    """

    bootstrap: Annotated[int, Field(ge=1, le=10**6)] = 500
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    summary: dict[Name, Headline] = {}
    scores: Annotated[dict[Name, Declaration], Field(min_length=1)]
    pictures: dict[Name, Declaration] = {}


class Samples(Section):
    """Sample pictures during training: `count` examples of a `split`, these names side by side.

    Drawn every `every` iterations (default: at each evaluation). Of validation they are always the same examples; of
    training, the first ones of the iteration's batch, as the networks got it.
    """

    names: Annotated[list[Name], Field(min_length=1)]
    count: Count
    every: Count | None = None
    split: Literal["validation", "train", "both"] = "validation"


class Scores(Section):
    """Scores during training: these `metrics.scores`, on at most `limit` evenly spaced examples.

    Examples are those of `evaluate.data`, but of the splits in `data.validation`. Computed every `every` iterations
    (default: at each evaluation); see `figura/live/scores.py`.
    """

    names: Annotated[list[Name], Field(min_length=1)]
    every: Count | None = None
    limit: Count | None = 64


class Runtime(Section):
    """Settings that do not change results; no stage tracks them.

    Every `resume_every` iterations a resume point replaces the last one. Every `checkpoint_every` iterations, and at
    the end, the weights to evaluate are written as a model folder `<run>/checkpoints/step-000500`, which stays; with
    `checkpoints_kept`, only the newest so many stay. With `states`, a training begins with the state of another one
    that was equal so far (docs/states.md).
    """

    renamed = {"keep_every": "checkpoint_every"}
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    log_every: Count = 100
    resume_every: Count = 250
    checkpoint_every: Count | None = None
    checkpoints_kept: Count | None = None
    states: bool = True
    progress: bool = True
    timing: bool = False
    trackers: list[Literal["dvclive", "tensorboard", "wandb"]] = ["dvclive"]
    samples: Samples | None = None
    scores: Scores | None = None


class Recipe(Section):
    """A params file: what is trained, on what data, by which losses, and how it is evaluated.

    `callbacks` name your own code, called at fixed points of the training (`interfaces.Callback`).
    """

    seed: Annotated[int, Field(ge=0)]
    data: Data
    networks: Annotated[dict[Name, NetworkEntry], Field(min_length=1)]
    losses: Annotated[dict[Name, LossEntry], Field(min_length=1)]
    steps: Annotated[dict[Name, StepEntry], Field(min_length=1)]
    train: Train
    callbacks: dict[Name, Declaration] = {}
    evaluate: Evaluate
    predict: Predict | None = None
    metrics: Metrics
    runtime: Runtime = Runtime()
    _facts: dict[str, Any] = PrivateAttr(default_factory=dict)
    _path: Path = PrivateAttr(default=Path("recipe"))

    @property
    def facts(self) -> dict[str, Any]:
        """What the training data, or the trained model, told this recipe by name; `completion.py` used it."""
        return self._facts

    @property
    def path(self) -> Path:
        """The file that it was read from, as messages name it."""
        return self._path

    def read_from(self, path: Path, facts: Mapping[str, Any] | None = None) -> "Recipe":
        """Return the recipe with the file that it was read from, and if given, with these facts."""
        recipe = self.model_copy()
        recipe._path, recipe._facts = path, self._facts if facts is None else dict(facts)
        return recipe

    def loss_step(self, loss: str) -> str:
        """Return the step that a loss belongs to: the one it names, or the only one."""
        return self.losses[loss].step or next(iter(self.steps), "")

    def parts(self, step: str) -> int:
        """Return the number of parts that a step cuts its batch into."""
        return self.steps[step].accumulation or self.train.accumulation

    def starts_from(self) -> dict[str, str]:
        """Return the file of initial weights of each network that has one: its `weights`, or from `train.init_from`."""
        given = {name: entry.weights for name, entry in self.networks.items() if entry.weights is not None}
        files = {name: weights for name, weights in given.items() if weights != OWN}
        if (start := self.train.init_from) is not None:
            chosen = self.networks if start.networks is None else start.networks
            files |= {name: f"{start.run}/model/{name}.safetensors" for name in chosen}
        return files
