"""`domainadaptor serve`: flags, settings from the environment, and what is wrong with them."""

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra serve")

from domainadaptor.serve import server
from tests.serve.service import write_checkpoint


@pytest.fixture
def started(monkeypatch):
    """Collect the settings instead of serving."""
    found = []
    monkeypatch.setattr(server, "run_server", lambda settings, cluster: found.append(settings))
    return found


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (("--host", "0.0.0.0"), "DOMAINADAPTOR_SERVE_TOKEN"),
        (("--host", "::"), "--no-token"),
        (("--host", "example.org"), "--no-token"),
        (("--limit", "queue=0"), "queue: Input should be greater than or equal to 1"),
        (("--limit", "quue=5"), "quue: Extra inputs are not permitted"),
        (("--limit", "queue"), "expected name=value"),
        (("--port", "70000"), "port: Input should be less than or equal to 65535"),
        (("--method", "tnt"), "unknown method 'tnt'"),
    ],
)
def test_mistakes_are_explained_before_anything_is_loaded(program, started, flags, hint):
    done = program("serve", "c.safetensors", *flags)
    assert done.returncode == 1
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not started


def test_flags_win_over_the_environment(program, started, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_QUEUE", "5")
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_PORT", "7000")
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_TOKEN", "s3cret")
    done = program("serve", "c.safetensors", "--host", "0.0.0.0", "--port", "9000", "--option", "lr=0.1")
    assert done.returncode == 0, done.stderr
    (settings,) = started
    assert (settings.queue, settings.port, settings.options) == (5, 9000, {"lr": "0.1"})
    assert "s3cret" not in repr(settings)


def test_everything_but_the_network_is_read_from_the_environment(program, started, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_METHOD", "tent")
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_OPTIONS", '{"lr": "0.1"}')
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_WORKERS", "3")
    assert program("serve", "c.safetensors").returncode == 0
    (settings,) = started
    assert (settings.method, settings.options, settings.workers) == ("tent", {"lr": "0.1"}, 3)


def test_a_misspelled_variable_is_reported(program, started, monkeypatch):
    monkeypatch.setenv("DOMAINADAPTOR_SERVE_TOKNE", "s3cret")
    done = program("serve", "c.safetensors")
    assert done.returncode == 1
    assert "DOMAINADAPTOR_SERVE_TOKNE" in done.stderr
    assert "s3cret" not in done.stderr
    assert not started


@pytest.mark.parametrize("flags", [(), ("--host", "::1"), ("--host", "localhost"), ("--host", "0.0.0.0", "--no-token")])
def test_only_other_machines_need_a_token(program, started, flags):
    assert program("serve", "c.safetensors", *flags).returncode == 0
    assert started[0].token is None


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("none.safetensors",), "no checkpoint at"),
        (("resnet20",), "No weights given"),
        (("c.safetensors", "--method", "eata"), "source"),
        (("c.safetensors", "--option", "lr=-1"), "at least 0"),
        (("c.safetensors", "--stream-method", "adabn"), "keeps nothing between batches"),
    ],
)
def test_what_cannot_be_served_is_explained(tmp_path, arguments, hint):
    from domainadaptor.errors import AdaptationError
    from domainadaptor.serve.model import ServedModel
    from domainadaptor.serve.settings import read_settings

    write_checkpoint(tmp_path / "c.safetensors")
    network = str(tmp_path / arguments[0]) if arguments[0].endswith("safetensors") else arguments[0]
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    typed = dict(pair.split("=") for flag, pair in given.items() if flag == "--option")
    settings = read_settings(
        network=network,
        method=given.get("--method", "domainadaptor-t"),
        options=typed,
        stream_method=given.get("--stream-method"),
    )
    with pytest.raises(AdaptationError, match=hint):
        ServedModel(settings)
