#!/bin/sh
# Whole trainings with the compiled module: every schedule and placement gives the same bits.
. "$SRCDIR/tests/ptx/suite.sh"
suite 80 cuda_train_test
finish
