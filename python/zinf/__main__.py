"""``python -m zinf ...`` is the command: the one that was installed with the package, else that of
the PATH."""

import os
import shutil
import sys

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_prefix", "bin", "zinf")


def main() -> None:
    command = _OWN if os.access(_OWN, os.X_OK) else shutil.which("zinf")
    if not command or os.path.realpath(command) == os.path.realpath(sys.argv[0]):
        sys.exit("zinf: the command is not installed: pip install ./python of a checkout brings it")
    os.execv(command, ["zinf", *sys.argv[1:]])


if __name__ == "__main__":
    main()
