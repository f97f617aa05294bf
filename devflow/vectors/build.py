"""The process that builds a collection's graphs: `python -m devflow.vectors.build FOLDER PARENT_PID`.

The engine keeps the GIL while it does so, minutes for 100,000 points, so it never happens in a process that serves.
The folder is a copy nobody else has open. This process ends with its parent and leaves the processors to others.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _end_with(parent: int) -> None:
    """Be killed when the parent dies (the thread of it that started us, which waits for us; Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")


def main(folder: Path, parent: int) -> None:
    _end_with(parent)
    os.nice(19)
    from devflow.vectors.shards import Shard

    shard = Shard.load(folder)
    shard.optimize()
    shard.flush()
    shard.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
