# Tests of each folder are declared in that folder's local.mk; here what is common.
EXTRA_DIST += tests/tap.h tests/files.h tests/command.sh
TEST_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
TEST_LDADD = libcore.la $(EXTERNAL_LIBS)

# The house's order and the manual, and the sanitizer run of `make check-san`.
TESTS += tests/arrows_test.sh tests/man_test.sh tests/man_library_test.sh tests/cli_commands_test.sh
EXTRA_DIST += tests/arrows_test.sh tests/man_test.sh tests/man_library_test.sh tests/cli_commands_test.sh \
	tests/check_san.sh tests/tsan.supp tests/lsan.supp

# What the sources must look like as a whole.
TESTS += tests/house_test.sh
EXTRA_DIST += tests/house_test.sh

# The whole command: bad input, its memory against the ledger, stopping and going on.
TESTS += tests/bad_input_test.sh tests/memory_test.sh tests/resume_test.sh
EXTRA_DIST += tests/bad_input_test.sh tests/memory_test.sh tests/resume_test.sh
EXTRA_DIST += tests/run.sh .ci/run

# Real trainings, killed. ZINF_TEST_KILLS=200 by hand.
check_PROGRAMS += tests/crash/kill_test
TESTS += tests/crash/kill_test
tests_crash_kill_test_SOURCES = tests/crash/kill_test.c tests/train_support.h
tests_crash_kill_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_crash_kill_test_LDADD = $(TEST_LDADD)

# Random lists of stages and units.
check_PROGRAMS += tests/train_graph_test
TESTS += tests/train_graph_test
tests_train_graph_test_SOURCES = tests/train_graph_test.c tests/graph_plain.h tests/graph_random.h \
	tests/graph_stages.h tests/graph_trainer.h
tests_train_graph_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_graph_test_LDADD = $(TEST_LDADD)
tests_train_graph_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=zinf_family_find,--wrap=trainer_load

# What the library exports.
TESTS += tests/abi_test.sh
EXTRA_DIST += tests/abi_test.sh

# Early stopping, and the model of the best evaluation.
TESTS += tests/best_test.sh
TESTS += tests/preference_test.sh tests/adapter_base_test.sh tests/adapter_sum_test.sh \
	tests/reward_test.sh tests/adapter_join_test.sh
EXTRA_DIST += tests/preference_test.sh tests/adapter_base_test.sh tests/adapter_sum_test.sh \
	tests/reward_test.sh tests/adapter_join_test.sh
EXTRA_DIST += tests/best_test.sh

# Traces: rows, arrows and gaps. `tests/trace_test FILE` checks one by hand.
check_PROGRAMS += tests/trace_test
TESTS += tests/trace_test
tests_trace_test_SOURCES = tests/trace_test.c tests/trace_check.h tests/trainings.h tests/train_support.h
tests_trace_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_trace_test_LDADD = $(TEST_LDADD)
