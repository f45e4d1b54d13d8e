import pytest
import torch

from figura.interfaces import State, batch_size, detach, split_batch


def test_a_name_is_written_once():
    state = State({"x": torch.zeros(2)})
    state.add("y", torch.ones(2))
    with pytest.raises(KeyError, match="'y' is there already"):
        state.add("y", torch.ones(2))
    with pytest.raises(KeyError, match="'x' is there already"):
        state.add("x", torch.ones(2))
    assert list(state) == ["x", "y"]
    assert state["x"].sum() == 0


def test_an_unknown_name_is_said_with_the_nearest():
    with pytest.raises(KeyError, match=r"nobody provides 'imge' \(did you mean 'image'\?\); there are \['image'\]"):
        State({"image": torch.zeros(2)})["imge"]


def test_the_batch_itself_stays_as_it_was():
    batch = {"x": torch.zeros(2)}
    State(batch).add("y", torch.ones(2))
    assert list(batch) == ["x"]


def test_detached_is_a_view_of_its_own():
    source = torch.ones(3, requires_grad=True)
    state = State({"a": source * 2, "b": {"c": [source * 3]}, "kept": source * 4})
    view = state.detached(["a", "b"])
    assert not view["a"].requires_grad
    assert not view["b"]["c"][0].requires_grad
    assert view["kept"] is state["kept"]
    assert state["a"].requires_grad
    view.add("new", source)
    assert "new" not in state
    with pytest.raises(KeyError):
        view.add("a", source)


def test_detach_keeps_structure_and_plain_values():
    tree = {"a": (torch.ones(1, requires_grad=True), "text"), "n": 3}
    found = detach(tree)
    assert isinstance(found["a"], tuple)
    assert found["a"][1:] == ("text",)
    assert found["n"] == 3
    assert not found["a"][0].requires_grad


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 12])
def test_pieces_of_a_batch_are_the_batch(parts):
    batch = {"word": list("abcdefg"), "x": torch.arange(14).reshape(7, 2)}
    assert batch_size(batch) == 7
    pieces = split_batch(batch, parts)
    assert len(pieces) == min(parts, 7)
    assert torch.equal(torch.cat([piece["x"] for piece, _ in pieces]), batch["x"])
    assert [word for piece, _ in pieces for word in piece["word"]] == batch["word"]
    assert [share for _, share in pieces] == [len(piece["x"]) / 7 for piece, _ in pieces]
    assert sum(share for _, share in pieces) == pytest.approx(1)
