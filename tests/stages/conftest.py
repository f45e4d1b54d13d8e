import pytest
from real_people import leave_out_plots


@pytest.fixture
def with_plots():
    """Asks for the pictures, which other tests leave out."""


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """An empty folder, made the current one, with the module's `data/params.yaml`; nothing is drawn for people."""
    monkeypatch.chdir(tmp_path)
    request.module.write_params()
    if "with_plots" not in request.fixturenames:
        leave_out_plots(monkeypatch)
