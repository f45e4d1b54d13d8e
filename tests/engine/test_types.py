import pytest
import toy

from models.engine.errors import UserError
from models.engine.examples import Examples
from models.engine.injecting.injectors import Forward
from models.engine.losses import Loss
from models.engine.problems import Problems
from models.engine.recipes.slots import DATASET, INJECTOR, LOSS, NETWORK
from models.engine.recipes.types import SCHEDULE, construct, find_type
from models.engine.schedules import Linear, WarmUp


@pytest.fixture
def problems():
    return Problems(toy.Path("p.yaml"))


def test_dotted_names_are_absolute_imports_and_bare_ones_the_engines_own(problems):
    assert find_type("toy.Painter", NETWORK, "k", problems) is toy.Painter
    assert find_type("Forward", INJECTOR, "k", problems) is Forward
    assert find_type("Linear", SCHEDULE, "k", problems) is Linear
    assert not problems.lines


def test_models_come_before_other_packages(problems, monkeypatch, tmp_path):
    import models

    (tmp_path / "pictures.py").write_text(
        "from models.engine.losses import Loss\nclass Near(Loss):\n    where = 'models'\n"
    )
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "pictures.py").write_text(
        "from models.engine.losses import Loss\nclass Near(Loss): where = 'outside'\n"
    )
    monkeypatch.syspath_prepend(str(elsewhere))
    found = find_type("pictures.Near", LOSS, "k", problems)
    assert found is not None
    assert found.where == "models"


class ConstructedError(Exception):
    pass


class Trap:
    """Says that it was constructed."""

    def __init__(self) -> None:
        raise ConstructedError


class LossTrap(Loss):
    def __init__(self) -> None:
        raise ConstructedError


@pytest.mark.parametrize("slot", [DATASET, NETWORK, INJECTOR, SCHEDULE])
@pytest.mark.parametrize(
    "name", ["test_types.Trap", "subprocess.Popen", "os.system", "models.engine.examples.Examples"]
)
def test_what_a_slot_does_not_allow_is_never_constructed(name, slot, problems):
    assert construct(name, {}, slot, "k", problems) is None
    (line,) = problems.lines
    assert line.startswith("p.yaml: k.type: ")


def test_what_a_slot_allows_is_constructed(problems):
    with pytest.raises(ConstructedError):
        construct("test_types.LossTrap", {}, LOSS, "k", problems)


def test_the_base_of_a_slot_is_nothing_to_construct(problems):
    assert find_type("models.engine.examples.Examples", DATASET, "k", problems) is None
    assert Examples.__name__ in problems.lines[0]


def test_a_fault_inside_a_named_module_is_no_unknown_type(problems, monkeypatch, tmp_path):
    (tmp_path / "half_installed.py").write_text("import module_that_is_nowhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="module_that_is_nowhere"):
        find_type("half_installed.Net", NETWORK, "k", problems)


def test_schedules_stand_inside_arguments(problems):
    ramp = {"type": "Linear", "start": 0, "end": 4, "from": 0.0, "to": 1.0}
    forward = construct(
        "Forward", {"network": "n", "inputs": {}, "outputs": {}, "args": {"noise": ramp}}, INJECTOR, "k", problems
    )
    assert forward.args["noise"](2) == 0.5
    nested = construct("WarmUp", {"steps": 2, "then": ramp}, SCHEDULE, "k", problems)
    assert isinstance(nested, WarmUp)
    assert nested(3) == 0.75
    assert not problems.lines


def test_a_value_error_of_a_constructor_is_the_declarations(problems):
    assert construct("Step", {"at": [3, 1], "values": [1.0, 2.0, 3.0]}, SCHEDULE, "k", problems) is None
    (line,) = problems.lines
    assert line.startswith("p.yaml: k: Step: at [3, 1]")


def test_problems_are_raised_together_or_not_at_all(problems):
    problems.raise_any()
    problems.add("a.b", "one")
    problems.add_unknown("c", "wird", ["word", "zebra"], "thing")
    with pytest.raises(UserError) as caught:
        problems.raise_any()
    assert str(caught.value) == (
        "p.yaml: a.b: one\np.yaml: c: unknown thing 'wird' (did you mean 'word'?); allowed: word, zebra"
    )
