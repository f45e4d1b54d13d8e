"""What a recipe looks like: the sections of `params.yaml` and `recipes/*.yaml`, and the keys of each.

Only the form is checked here; `recipe.py` checks what the names mean. Numbers that shape a result have no default: they
stand in the recipe, where DVC watches them. A default marks what a recipe may leave out because it is then not used.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.base.yaml12 import to_yaml
from models.recipe.gates import Gate

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Count = Annotated[int, Field(ge=1)]
Position = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
RESULT_SECTIONS = ("seed", "data", "networks", "losses", "steps", "train", "callbacks")
"""What training reads."""
Precision = Literal["no", "fp16", "bf16", "fp8"]
Format = Literal["image", "mask", "array", "number", "records"]
"""How a dump stores a name: `dump.py` says what each means."""


class Section(BaseModel):
    """A closed set of keys; immutable once read. `renamed` maps keys of earlier versions to what they are called now."""

    renamed: ClassVar[dict[str, str]] = {}
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Declaration(Section):
    """`type` names a class (types.py says how it is found); the other keys are its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)
    type: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The keys that are no fields of the declaration itself."""
        return self.model_extra or {}


class DatasetEntry(Declaration):
    """One dataset; in a mixture, `weight` is its share of the batches relative to the others."""

    weight: Positive = 1.0


class Data(Section):
    """Where examples come from; `batch_size` is global, whatever the number of processes."""

    train: Annotated[dict[Name, DatasetEntry], Field(min_length=1)]
    validation: Annotated[dict[Name, DatasetEntry], Field(min_length=1)]
    batch_size: Count


class NetworkEntry(Declaration):
    """One network; `weights` is a safetensors file to start from."""

    weights: str | None = None


class Gated(Section):
    """What runs in iterations t with `after` <= t < `before` and (t - `after`) divisible by `every`.

    In validation passes, which look at one moment, `after` and `before` hold as at that moment, and `every` does not.
    """

    every: Count = 1
    after: Position = 0
    before: Count | None = None

    @property
    def gate(self) -> Gate:
        """When it runs."""
        return Gate(self.every, self.after, self.before)

    @model_validator(mode="after")
    def _runs(self) -> "Gated":
        if self.before is not None and self.before <= self.after:
            raise ValueError(f"after {self.after} and before {self.before}: it would never run")
        return self


class InjectorEntry(Gated, Declaration):
    """One injector of a step; outside its gate it adds nothing. `only` is the kind of pass that it is confined to.

    Several may add the same name where no two of them ever run together.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    only: Literal["training", "evaluation"] | None = None


class LossEntry(Gated, Declaration):
    """One loss: `inputs` maps its roles to names of the state; effective weight = `weight` x schedule(step).

    Outside its gate it is not computed.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    inputs: dict[Name, Name]
    weight: Number
    schedule: Declaration | None = None
    step: Name | None = None


class Group(Section):
    """Options of an optimizer (`weight_decay: 0.0`) for parameters whose name the regular expression is found in."""

    model_config = ConfigDict(extra="allow", frozen=True)
    pattern: str


class StepEntry(Gated):
    """One optimization: injectors in their order, the losses that name the step, one backward, one update.

    It is left out where one of the names in `requires` is not there: a batch of a mixture that lacks it. Tensors named in
    `detach` carry no gradient into it. `accumulation` cuts its batch into so many parts, `train.accumulation` where left
    out; steps of the same number share the names that they add, others do not. `clip_value` is the largest size of a gradient's element, `clip` the largest norm of the
    gradient over all parameters it trains, taken after it. `groups` set other options of the optimizer for parameters
    whose name (`network.layer.weight`) a pattern is found in; the first one counts.
    """

    trains: Annotated[list[Name], Field(min_length=1)]
    optimizer: Declaration
    lr_schedule: Declaration | None = None
    injectors: dict[Name, InjectorEntry]
    clip: Positive | None = None
    clip_value: Positive | None = None
    groups: dict[Name, Group] = {}
    detach: list[Name] = []
    requires: list[Name] = []
    accumulation: Count | None = None


class Ema(Section):
    """Exponential moving average of the weights; what is evaluated and written where it is on."""

    decay: Annotated[float, Field(gt=0, lt=1)]


class InitFrom(Section):
    """The weights of an earlier run to start from, those of all networks or of the named ones."""

    run: str
    networks: Annotated[list[Name], Field(min_length=1)] | None = None


class RollbackRule(Section):
    """What happens when `after` updates in a row were not finite: training goes back, at most `times` times.

    It goes back to the state at the last multiple of `every` iterations (or the start) at which no update was being
    skipped, goes on from there with all learning rates times `rate_factor`, other noise and another order of examples.
    """

    every: Count
    after: Count
    times: Count
    rate_factor: Annotated[float, Field(gt=0, le=1)]


class RateScaling(Section):
    """All learning rates are those written times (`data.batch_size` / `batch_size`), or its root with `sqrt`.

    They were found at `batch_size`. Linear: Goyal et al. 2017; the root, for Adam and its kind: Malladi et al. 2022.
    """

    rule: Literal["linear", "sqrt"]
    batch_size: Count

    def factor(self, batch_size: int) -> float:
        """Return what learning rates are multiplied by at a batch size."""
        ratio = batch_size / self.batch_size
        return ratio if self.rule == "linear" else ratio**0.5


class Train(Section):
    """How long and how; time is counted in iterations (`epochs` is converted once). No key depends on the number of processes.

    `accumulation` is the number of parts that a batch is cut into, gradients added up. With `find_batch_size` it is
    doubled, for all steps, whenever memory runs out, and training goes back to its last resume point: results then differ
    by rounding, by noise that is drawn a part at a time, and by what is computed over a batch (batch norm). Without
    `sync_batch_norm` each process normalises its share of a batch by itself.
    """

    renamed = {"recover": "rollback"}
    steps: Count | None = None
    epochs: Count | None = None
    precision: Precision = Field(description="of networks; losses are float32 (training/precision.py)")
    ema: Ema | None = None
    init_from: InitFrom | None = None
    accumulation: Count = 1
    rate_scaling: RateScaling | None = None
    sync_batch_norm: bool = True
    find_batch_size: bool = False
    evaluate_every: Count | None = Field(default=None, description="iterations; left out: after each epoch")
    record_every: Count
    max_nonfinite: Count = Field(description="abort after so many skipped updates in a row")
    rollback: RollbackRule | None = None

    @model_validator(mode="after")
    def _one_length(self) -> "Train":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("write either steps or epochs")
        return self

    @model_validator(mode="after")
    def _recovers(self) -> "Train":
        if self.rollback is not None and self.rollback.after > self.max_nonfinite:
            raise ValueError(f"rollback.after {self.rollback.after} is more than max_nonfinite {self.max_nonfinite}")
        return self


class Mode(Section):
    """One way to run the trained networks over the validation split; `repeat` draws for each instance."""

    injectors: Annotated[dict[Name, Declaration], Field(min_length=1)]
    save: dict[Name, Format]
    repeat: Count = 1


class Grid(Section):
    """Every row with every column: `rows` and `columns` name what an instance gives to the pair; `size` of each."""

    rows: Annotated[list[Name], Field(min_length=1)]
    columns: Annotated[list[Name], Field(min_length=1)]
    size: Count
    injectors: Annotated[dict[Name, Declaration], Field(min_length=1)]
    save: dict[Name, Format]


class Average(Section):
    """The mean of a name over (at most) so many examples of the training split, spread evenly."""

    of: Name
    examples: Count


class Evaluate(Section):
    """What eval-dump writes: the instances' own `inputs`, `modes`, `grids` and `averages`.

    With `timing` rows have `ms.<injector>`, the milliseconds an instance took; such a dump is another one each time.
    """

    renamed = {"crosses": "grids"}
    batch_size: Count
    timing: bool = False
    inputs: dict[Name, Format]
    modes: Annotated[dict[Name, Mode], Field(min_length=1)]
    grids: dict[Name, Grid] = {}
    averages: dict[Name, Average] = {}


class Predict(Section):
    """How pictures from anywhere become predictions: `data` makes examples of them, a mode of `evaluate` runs on these.

    `injectors` run after those of the mode, of which only those run that `save` needs. `save` says what is written for
    each example; `grid` names one of `evaluate.grids`, drawn as a grid.
    """

    renamed = {"cross": "grid"}
    data: Declaration
    mode: Name
    injectors: dict[Name, Declaration] = {}
    save: Annotated[dict[Name, Literal["image", "mask", "array", "records"]], Field(min_length=1)]
    grid: Name | None = None


class Metrics(Section):
    """What is computed and drawn from the dump alone; intervals by `bootstrap` resamples of the instances."""

    bootstrap: Count
    confidence: Annotated[float, Field(gt=0, lt=1)]
    scores: Annotated[dict[Name, Declaration], Field(min_length=1)]
    pictures: dict[Name, Declaration] = {}


class Samples(Section):
    """Pictures during training, at each evaluation: so many validation instances, these names side by side."""

    names: Annotated[list[Name], Field(min_length=1)]
    count: Count


class Scores(Section):
    """Figures during training: those of these `metrics.scores`, of at most `limit` validation instances, evenly spread.

    `every` so many iterations; where left out, at each evaluation. See `online.py`.
    """

    names: Annotated[list[Name], Field(min_length=1)]
    every: Count | None = None
    limit: Count | None = 64


class Runtime(Section):
    """What may not change results; no stage tracks it.

    Every `resume_every` iterations a state to resume from replaces the last one; every `checkpoint_every`, and at the end,
    what would be evaluated is written as a model folder `<run>/checkpoints/step-000500` and stays.
    """

    renamed = {"keep_every": "checkpoint_every", "checkpoint_every": "resume_every"}
    workers: Position
    log_every: Count
    resume_every: Count
    checkpoint_every: Count | None = None
    progress: bool
    timing: bool
    trackers: list[Literal["dvclive", "tensorboard", "wandb"]]
    samples: Samples | None = None
    scores: Scores | None = None


class Recipe(Section):
    """A params file: what is trained, on what, by which losses, and how it is judged.

    `callbacks` name code of your own that is called at fixed points of the training (`callbacks.Callback`).
    """

    seed: Position
    data: Data
    networks: Annotated[dict[Name, NetworkEntry], Field(min_length=1)]
    losses: Annotated[dict[Name, LossEntry], Field(min_length=1)]
    steps: Annotated[dict[Name, StepEntry], Field(min_length=1)]
    train: Train
    callbacks: dict[Name, Declaration] = {}
    evaluate: Evaluate
    predict: Predict | None = None
    metrics: Metrics
    runtime: Runtime

    def loss_step(self, loss: str) -> str:
        """Return the step a loss belongs to: the one it names, or the only one."""
        return self.losses[loss].step or next(iter(self.steps))

    def parts(self, step: str) -> int:
        """Return the number of parts that a step cuts a batch into."""
        return self.steps[step].accumulation or self.train.accumulation

    def starts_from(self) -> dict[str, str]:
        """Return the file of each network that does not start at random: its own, or that of `train.init_from`."""
        files = {name: entry.weights for name, entry in self.networks.items() if entry.weights is not None}
        if (start := self.train.init_from) is not None:
            chosen = self.networks if start.networks is None else start.networks
            files |= {name: f"{start.run}/model/{name}.safetensors" for name in chosen}
        return files


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, every default filled in."""
    return to_yaml(recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True))
