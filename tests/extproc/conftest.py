import pytest
import structlog
from supervised import Bench


@pytest.fixture
async def bench(tmp_path):
    with structlog.testing.capture_logs() as entries:
        made = Bench(tmp_path, structlog.get_logger())
        made.entries = entries
        yield made
        await made.close()
