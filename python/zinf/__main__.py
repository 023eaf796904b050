"""``python -m zinf ...`` is the command: the one that was installed with the package, else that of
the PATH."""

import os
import shutil
import sys

from ._library import OTHERS, PREFIX, brings_others

_OWN = os.path.join(PREFIX, "bin", "zinf")


def main() -> None:
    """Becomes the command."""
    command = _OWN if os.access(_OWN, os.X_OK) else shutil.which("zinf")
    if not command or os.path.realpath(command) == os.path.realpath(sys.argv[0]):
        sys.exit("zinf: the command is not installed: pip install ./python of a checkout brings it")
    if command == _OWN and brings_others:
        there = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{OTHERS}:{there}" if there else OTHERS
    os.execv(command, ["zinf", *sys.argv[1:]])


if __name__ == "__main__":
    main()
