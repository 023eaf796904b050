#!/bin/sh
# Whole trainings with the compiled module: every schedule and placement gives the same bits.
. "$SRCDIR/tests/ptx/suite.sh"
suite "$first_with_bf16" cuda_train_test
finish
