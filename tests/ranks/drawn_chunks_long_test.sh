#!/bin/sh
# Twelve more draws of drawn_chunks_test.sh.
DRAWS=${DRAWS:-12}
SEED=${SEED:-7}
. "$SRCDIR/tests/ranks/drawn_chunks_test.sh"
