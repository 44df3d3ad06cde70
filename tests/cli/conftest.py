import pytest
from running import make_place


@pytest.fixture
def place():
    folder, made = make_place()
    with folder:
        yield made
        made.close()
