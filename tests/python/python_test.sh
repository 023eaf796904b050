#!/bin/sh
# The Python door: python/tests and the examples of the docstrings, with the library of this build.
# PYTHON names another interpreter than python3, such as one that has torch.
. "$SRCDIR/tests/support/command.sh"
PYTHON=${PYTHON-python3}
reason=
[ -f "$BUILDDIR/.libs/libzinf.so" ] || reason="there is no shared library"
[ -z "${ZINF_SANITIZER-}" ] || reason="a sanitizer's library needs an interpreter of its own"
command -v "$PYTHON" >/dev/null || reason="there is no python3"
[ -n "$reason" ] || "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
    reason="python3 is older than 3.9"
if [ -n "$reason" ]; then
    skip "the Python door" "$reason"
    finish
fi
ZINF_LIBRARY=$BUILDDIR/.libs/libzinf.so
PYTHONPATH=$SRCDIR/python
PYTHONDONTWRITEBYTECODE=1
export ZINF_LIBRARY PYTHONPATH PYTHONDONTWRITEBYTECODE
"$PYTHON" "$SRCDIR/python/tests/run.py" "$BUILDDIR" "$work" </dev/null 2>"$work/said.err"
status=$?
[ $status -eq 0 ] || sed 's/^/# /' "$work/said.err"
exit $status
