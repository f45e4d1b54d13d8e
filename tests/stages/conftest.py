import pytest


@pytest.fixture
def with_plots():
    """Asks for the pictures, which other tests leave out."""


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """An empty folder, made the current one, with the module's `data/params.yaml`; nothing is drawn for people."""
    monkeypatch.chdir(tmp_path)
    request.module.write_params()
    if "with_plots" not in request.fixturenames:  # they take most of the time
        monkeypatch.setattr("data.preparation.people.write_plots", lambda *_: None)
        monkeypatch.setattr("data.preparation.people.write_people", lambda *_: None)
        monkeypatch.setattr("data.preparation.pairs.write_sheet", lambda *_: None)
