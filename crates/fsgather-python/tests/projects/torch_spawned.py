"""Torch's own tests of its collectives, which its wheel has all but the last lines of: these. Arguments are those of ``unittest``."""

from __future__ import annotations

import os
import tempfile
import unittest

# The module decides by these what it tests.
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="fsgather-torch-"))
os.environ.update(BACKEND="gloo", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1")

from torch.testing._internal.distributed import distributed_test


class Spawned(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
    """Each test in four processes of its own; with another number some are skipped."""

    def setUp(self) -> None:
        """Starts them."""
        super().setUp()
        self._spawn_processes()


# Its child processes look for what they run in the main module, under this name.
if __name__ == "__main__":
    unittest.main()
