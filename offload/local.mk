libcore_la_SOURCES += offload/offload.h offload/executor.h offload/trace.h offload/layout.c \
	offload/tiers.c offload/builder.h offload/program.c offload/schedule.c \
	offload/schedule_list.c offload/simulate.c offload/executor.c offload/drive_lane.c \
	offload/device_lane.c offload/trace.c

check_PROGRAMS += tests/offload_test
TESTS += tests/offload_test
tests_offload_test_SOURCES = tests/offload_test.c
tests_offload_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_offload_test_LDADD = $(TEST_LDADD)
