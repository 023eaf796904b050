libcore_la_SOURCES += offload/offload.h offload/executor.h offload/trace.h offload/layout.c \
	offload/tiers.c offload/program.c offload/executor.c offload/drive_lane.c offload/trace.c
