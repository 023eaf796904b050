libcore_la_SOURCES += offload/offload.h offload/executor.h offload/trace.h offload/trace_private.h \
	offload/layout.c offload/tiers.c offload/builder.h offload/program.c offload/schedule.c \
	offload/schedule_list.c offload/simulate.c offload/executor.c offload/executor_trace.c \
	offload/drive_lane.c offload/device_lane.c offload/trace.c offload/trace_write.c offload/emulate.h offload/emulate.c

OFFLOAD_TESTS = tests/offload_program_test tests/offload_executor_test tests/offload_tiers_test \
	tests/offload_emulate_test
check_PROGRAMS += $(OFFLOAD_TESTS)
TESTS += $(OFFLOAD_TESTS)
EXTRA_DIST += tests/offload_support.h
tests_offload_program_test_SOURCES = tests/offload_program_test.c
tests_offload_program_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_offload_program_test_LDADD = $(TEST_LDADD)
tests_offload_executor_test_SOURCES = tests/offload_executor_test.c
tests_offload_executor_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_offload_executor_test_LDADD = $(TEST_LDADD)
tests_offload_tiers_test_SOURCES = tests/offload_tiers_test.c
tests_offload_tiers_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_offload_tiers_test_LDADD = $(TEST_LDADD)
tests_offload_emulate_test_SOURCES = tests/offload_emulate_test.c
tests_offload_emulate_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_offload_emulate_test_LDADD = $(TEST_LDADD)
