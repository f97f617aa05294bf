"""What a child is started under: limits of the kernel, and bubblewrap where a backend asks for it.

`sh` sets the limits and becomes the program: no code runs between fork and exec in this process, and nothing the
child starts can come before its limits (docs/decisions/027).
"""

import shutil

from mcpbridge.gateway.faults import unavailable
from mcpbridge.gateway.specs import BackendSpec

OPEN_FILES = 8192
FILE_MIB = 4096
CPU_SECONDS = 4 * 3600

_LIMITED = (
    'ulimit -c 0; ulimit -n "$1"; ulimit -f "$2"; ulimit -t "$3"; [ "$4" = 0 ] || ulimit -d "$4"; shift 4; exec "$@"'
)
_SANDBOX = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"),
    *("--dev-bind", "/", "/", "--proc", "/proc", "--"),
)
"""It sees no process but its own, so neither can one escape nor can it read what this server was started with."""


def confined(spec: BackendSpec, path: str) -> list[str]:
    """The whole command line of a backend's process. Raises `unavailable` for a program that is not there.

    `path` is the PATH the child will have.
    """
    command = [spec.command, *spec.args]
    if "/" not in spec.command and shutil.which(spec.command, path=path) is None:
        raise unavailable(spec.id, f"{spec.command} is not installed on this server.")
    if spec.sandbox:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise unavailable(
                spec.id, "it is to run under bubblewrap, which is not installed (Debian: apt-get install bubblewrap)."
            )
        command = [bwrap, *_SANDBOX, *command]
    limits = [OPEN_FILES, FILE_MIB * 2048, CPU_SECONDS, spec.memory_mb * 1024]  # ulimit -f counts 512 bytes
    return ["/bin/sh", "-c", _LIMITED, "sh", *map(str, limits), *command]
