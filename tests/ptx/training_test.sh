#!/bin/sh
# Whole trainings with the compiled module: every schedule and placement gives the same bits.
. "$SRCDIR/tests/ptx/suite.sh"
suite 89 cuda_train_test # which multiplies floats of 8 bits; PTX of an older generation will do
finish
