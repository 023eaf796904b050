libcore_la_SOURCES += offload/offload.h offload/executor.h offload/trace.h offload/trace_private.h \
	offload/layout.c offload/tiers.c offload/builder.h offload/program.c offload/cut.c offload/pieces.c offload/schedule.c \
	offload/schedule_list.c offload/shared.c offload/simulate.c offload/predict.c offload/executor_state.c offload/executor.c offload/executor_trace.c \
	offload/drive_lane.c offload/device_lane.c offload/trace.c offload/trace_write.c

OFFLOAD_TESTS = tests/offload/offload_program_test tests/offload/offload_executor_test tests/offload/offload_tiers_test
program_tests += $(OFFLOAD_TESTS)
