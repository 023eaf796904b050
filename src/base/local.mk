libcore_la_SOURCES += src/base/base.h src/base/memory.h src/base/random.h src/base/packed.h src/base/json.h src/base/pulse.h \
	src/base/error.c src/base/log.c src/base/pulse.c src/base/dtype.c src/base/cpu.c src/base/cpu_load.h src/base/cpu_load.c src/base/file.c src/base/cache.h src/base/cache.c \
	src/base/median.h src/base/median.c src/base/size.c src/base/memory.c src/base/cgroup.h src/base/cgroup.c src/base/json.c \
	src/base/json_numbers.c src/base/library.h src/base/library.c \
	src/base/apart.h src/base/apart.c src/base/folder.h src/base/folder.c src/base/protobuf.h src/base/protobuf.c

# Vectorised, and the same bits with and without: no contraction.
noinst_LTLIBRARIES += librandom.la
librandom_la_SOURCES = src/base/random.c
librandom_la_CFLAGS = $(AM_CFLAGS) -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
libcore_la_LIBADD += librandom.la
INSTALLED_H += src/base/base.h
EXTRA_DIST += src/base/memory.h src/base/random.h

program_tests += tests/base/base_test tests/base/numa_test tests/base/protobuf_test
