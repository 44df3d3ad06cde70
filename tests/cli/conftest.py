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
