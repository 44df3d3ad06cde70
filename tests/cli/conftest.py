import signal

import pytest
from explaining import explaining
from running import make_place


@pytest.fixture
def place():
    folder, made = make_place()
    with folder:
        yield made
        made.close()


@pytest.fixture
def explain(capsys):
    return explaining(capsys)


@pytest.fixture
def shell_signals():
    """What is started minds signals as what a shell starts does, though who runs the tests may ignore some (nohup)."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
