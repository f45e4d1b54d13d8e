"""Print and draw what an iteration of a recipe does, without training.

Prints the networks; for each step its injectors with the names and shapes they add, and its losses with roles and
weights; floating-point operations and memory. `--output` draws the same. Shapes come from the first example of the
data; without prepared data, names are shown without shapes. `--mode` describes a mode of `evaluate` instead of an
iteration of training. Nothing is trained, and networks of any size take no memory. Not part of the DAG.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError
from figura.base.tables import aligned
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of, recipe_file
from figura.commands.describe.cards import CARDS, least_seconds
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trusted import HELP, OPTION, refuse_untrusted

if TYPE_CHECKING:
    from figura.commands.describe.dataflow import Box, Flow, Panel
    from figura.commands.describe.dry_run import Costs
    from figura.commands.describe.footprint import Footprint, Size

GPUS = (8, 16, 24, 80)  # their memory, as it is sold: a GB here is 2^30 bytes
COUNTED = (
    "FLOP: convolutions and matrix products, two a multiply-accumulate, by the plain algorithm; activations in float32"
)
Rows = list[tuple[str, ...]]


def main(arguments: list[str]) -> None:
    parser = parser_of("describe", __doc__)
    parser.add_argument("recipe", type=recipe_file, help="params file, such as params.yaml")
    parser.add_argument("--output", type=Path, metavar="FILE", help="picture to write, .svg or .png")
    parser.add_argument("--batch-size", type=int, metavar="N", help="examples in a batch; default: the recipe's")
    parser.add_argument("--mode", metavar="NAME", help="describe this mode of `evaluate` instead of training")
    parser.add_argument("--gpu", choices=CARDS, help="how long training takes at least on it, by its data sheet")
    parser.add_argument(OPTION, action="store_true", help=HELP)
    args = parser.parse_args(arguments)
    if args.batch_size is not None and args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: expected 1 or more")
    if args.gpu and args.mode is not None:
        raise UserError("--gpu computes the time of training; leave --mode out")
    if args.output is not None and args.output.suffix not in (".svg", ".png"):
        raise UserError(f"--output {args.output}: expected a file that ends in .svg or .png")
    content = read_yaml(args.recipe)
    if args.trusted_types_only:
        refuse_untrusted(content, args.recipe)
    check_schema(content, args.recipe)

    from figura.commands.describe.dataflow import mode_flow, training_flow
    from figura.commands.describe.dry_run import FEW, meta_networks, run_mode, run_training
    from figura.commands.describe.footprint import footprint, size_of

    recipe = check_recipe(content, args.recipe)
    flow = training_flow(recipe) if args.mode is None else mode_flow(recipe, args.mode)
    networks = meta_networks(recipe)
    sizes = {name: size_of(network) for name, network in networks.items()}
    if args.mode is None:
        costs = run_training(recipe, networks, args.batch_size)
        taken: Footprint | None = footprint(recipe, networks)
        title = f"{args.recipe}: an iteration of training, {costs.batch} examples"
    else:
        costs, taken = run_mode(recipe, networks, args.mode, args.batch_size), None
        title = f"{args.recipe}: mode {args.mode}, {costs.batch} examples at a time"
    table = network_rows(recipe, flow, sizes)
    notes = [*totals(costs, taken), *costs.notes, COUNTED]
    if args.gpu and taken is not None:
        notes += duration(costs, taken, args.gpu, recipe.train.steps)
    if costs.scaled:
        short = ", ".join(key.rpartition(".")[2] for key in costs.scaled)
        notes.append(f"run on the CPU with {FEW} examples, because they need values, and scaled: {short}")
    if flow.unread:
        notes.append(f"names in the data that nothing here reads: {', '.join(flow.unread)}")
    print(title, "", *aligned(table), *described(flow, costs), "", *notes, sep="\n")
    if args.output is not None:
        from figura.commands.describe.diagram import draw_flow  # matplotlib takes a second to load

        footers = {panel.title: cost_line(panel, costs) for panel in flow.panels[1:]}
        draw_flow(flow, costs.shapes, title, footers, aligned(table), notes, args.output)
        print(f"wrote {args.output}")


def network_rows(recipe: Recipe, flow: "Flow", sizes: "dict[str, Size]") -> Rows:
    """Return a header and a row for each network: type, parameters, trained ones, steps that train it, bytes."""
    called = dict.fromkeys(box.network for box in flow.boxes.values() if box.network)
    rows: Rows = [("network", "type", "parameters", "trained", "by step", "weights")]
    for name in [*called, *(name for name in sizes if name not in called)]:
        size, steps = sizes[name], [step for step, entry in recipe.steps.items() if name in entry.trains]
        rows.append(
            (
                name, recipe.networks[name].type, f"{size.parameters:,}", f"{size.trained:,}",
                ", ".join(steps) or "none", mebibytes(size.bytes + size.buffer_bytes),
            )
        )  # fmt: skip
    return rows


def described(flow: "Flow", costs: "Costs") -> Iterable[str]:
    """Yield the lines that describe each panel."""
    for panel in flow.panels:
        yield ""
        if panel.kind == "data":
            (data,) = panel.boxes
            yield f"data {data.title}: {', '.join(data.lines)}"
            yield from aligned([("", name, *_shape(name, costs)) for name in data.outputs])
            continue
        yield f"{panel.kind} {panel.title}: {'; '.join(panel.lines)}"
        rows: Rows = [("", "injector", "", "reads", "adds", "GFLOP")]
        rows += [row for box in panel.boxes if box.kind == "injector" for row in _injector_rows(box, costs)]
        yield from aligned(rows)
        last = [box for box in panel.boxes if box.kind != "injector"]
        rows = [("", "loss", "", "reads", "weight") if panel.kind == "step" else ("", "saved", "as")]
        rows += [_loss_row(box) if box.kind == "loss" else ("", box.title, *box.lines) for box in last]
        yield from aligned(rows)
        if panel.off:
            yield f"  of weight 0, not computed: {', '.join(panel.off)}"
        if line := cost_line(panel, costs):
            yield f"  {line}"


def _injector_rows(box: "Box", costs: "Costs") -> Iterable[tuple[str, ...]]:
    what = ", ".join((*((box.network,) if box.network else ()), *box.lines))
    flops = f"{costs.forward[box.key] / 1e9:.3f}" if box.key in costs.forward else ""
    adds = [" ".join((name, *_shape(name, costs))) for name in box.outputs]
    yield "", box.title, what, _reads(box), adds[0], flops
    for name in adds[1:]:
        yield "", "", "", "", name, ""


def _loss_row(box: "Box") -> tuple[str, ...]:
    kind, *schedule = box.lines
    return "", box.title, kind, _reads(box), " ".join((f"{box.weight:g}", *schedule))


def _reads(box: "Box") -> str:
    return ", ".join(name if role == name else f"{role} ← {name}" for role, name in box.inputs)


def _shape(name: str, costs: "Costs") -> tuple[str, ...]:
    return (", ".join(costs.shapes[name]),) if name in costs.shapes else ()


def cost_line(panel: "Panel", costs: "Costs") -> str:
    """Return a line with a panel's FLOPs and memory, empty if they are unknown."""
    forward = [costs.forward[box.key] for box in panel.boxes if box.key in costs.forward]
    if not forward:
        return ""
    parts = [f"forward {sum(forward) / 1e9:.3f} GFLOP"]
    if panel.title in costs.backward:
        parts.append(f"backward {costs.backward[panel.title] / 1e9:.3f} GFLOP")
    if panel.title in costs.saved:
        parts.append(f"saves {mebibytes(costs.saved[panel.title])} for backward")
    return ", ".join(parts)


def totals(costs: "Costs", taken: "Footprint | None") -> Iterable[str]:
    """Yield the lines for the whole iteration: operations, memory, the batches that fit."""
    if costs.forward:
        flops = sum(costs.forward.values()) + sum(costs.backward.values())
        known = costs.saved.keys() == costs.backward.keys()
        yield (
            f"in all{'' if known else ', without backward passes that are not known,'} {flops / 1e9:.3f} GFLOP "
            f"({flops / 2e9:.3f} GMAC), {flops / 1e9 / costs.batch:.3f} GFLOP an example"
        )
    if taken is None:
        return
    parts = [f"weights {mebibytes(taken.weights)}", f"gradients {mebibytes(taken.gradients)}"]
    if taken.averages:
        parts.append(f"averages {mebibytes(taken.averages)}")
    for step, size in taken.optimizers.items():
        parts.append(f"optimizer of {step} {'unknown' if size is None else mebibytes(size)}")
    if costs.fixed:
        parts.append(f"losses {mebibytes(costs.fixed)}")
    fixed = taken.total + costs.fixed
    if costs.peak:
        part = "" if costs.part == costs.batch else f" ({costs.part} examples at a time)"
        parts.append(f"activations {mebibytes(costs.peak)}{part}")
    yield f"memory: {', '.join(parts)}; together {mebibytes(fixed + costs.peak)}"
    if costs.peak and None not in taken.optimizers.values():
        from figura.commands.describe.footprint import largest_batch

        fitting = [f"{size} GB {largest_batch(size * 2**30, fixed, costs.peak / costs.part):,}" for size in GPUS]
        yield f"examples at a time that fit a GPU, estimated: {', '.join(fitting)}"


def duration(costs: "Costs", taken: "Footprint", gpu: str, steps: int | None) -> Iterable[str]:
    """Yield the line of `--gpu`."""
    flops = sum(costs.forward.values()) + sum(costs.backward.values())
    if not flops or costs.saved.keys() != costs.backward.keys():
        yield f"on {gpu}: unknown, as the operations are; they need prepared data"
        return
    saved = sum(costs.saved.values()) * costs.batch / costs.part
    each = least_seconds(flops, taken.total, saved, CARDS[gpu])
    times = " or ".join(f"{seconds * 1e3:.2g} ms" for seconds in each)
    whole = " or ".join(f"{seconds * (steps or 0) / 3600:.2g}" for seconds in each)
    all_steps = f", {steps:,} of them {whole} hours" if steps else ""
    yield f"on {gpu}, by its data sheet, an iteration takes at least {times} (float32 or 16 bits){all_steps}"


def mebibytes(size: int) -> str:
    """Return a number of bytes in MiB, as text."""
    return f"{size / 2**20:,.1f} MiB"
