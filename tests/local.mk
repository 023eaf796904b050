# Tests of each folder are declared in that folder's local.mk; here what is common.
TEST_CPPFLAGS = $(AM_CPPFLAGS)
TEST_LDADD = $(LDADD)

# The house's order and the manual, and the sanitizer run of `make check-san`.
script_tests += tests/house/arrows_test.sh tests/house/man_test.sh tests/house/man_library_test.sh \
	tests/cli/cli_commands_test.sh
EXTRA_DIST += tests/check_san.sh tests/tsan.supp tests/lsan.supp

# What the sources must look like as a whole.
script_tests += tests/house/house_test.sh

# The whole command: bad input, its memory against the ledger, stopping and going on.
script_tests += tests/cli/gradients_test.sh tests/cli/train_place_test.sh tests/cli/threads_test.sh tests/cli/bad_input_test.sh tests/cli/memory_test.sh tests/cli/resume_test.sh
EXTRA_DIST += tests/run.sh tests/limited.sh tests/long.txt .ci/run

# Real trainings, killed. ZINF_TEST_KILLS=200 by hand.
program_tests += tests/crash/kill_test

# Random lists of stages and units.
program_tests += tests/train/train_graph_test
tests_train_train_graph_test_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=zinf_family_find,--wrap=trainer_load

# What the library exports.
script_tests += tests/house/abi_test.sh

# Early stopping, and the model of the best evaluation.
script_tests += tests/cli/perplexity_test.sh tests/cli/longest_test.sh tests/cli/best_test.sh tests/cli/preference_test.sh tests/cli/float8_test.sh tests/cli/adapter_base_test.sh \
	tests/cli/adapter_sum_test.sh tests/cli/reward_test.sh tests/cli/adapter_join_test.sh tests/cli/merge_quantized_test.sh \
	tests/cli/apart_test.sh tests/cli/identity_test.sh tests/cli/trl_test.sh tests/cli/first_use_test.sh

# Traces: rows, arrows and gaps. `tests/offload/trace_test FILE` checks one by hand.
program_tests += tests/offload/trace_test
