import pytest


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """An empty folder, made the current one, with the module's `data/params.yaml`."""
    monkeypatch.chdir(tmp_path)
    request.module.write_params()
