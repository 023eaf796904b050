libcore_la_SOURCES += aio/aio.h aio/aio_engine.h aio/aio_queue.h aio/aio_store.h \
	aio/aio_queue.c aio/aio_file.c aio/aio_uring.c aio/aio_threads.c \
	aio/aio_null.c aio/aio_describe.c \
	aio/drive_bench.h aio/drive_bench.c \
	aio/store.c aio/store_folder.c aio/store_reclaim.c aio/store_plan.c aio/store_map.c aio/store_extents.c aio/store_fill.c aio/store_flush.c \
	aio/store_checksum.c aio/store_outlives.c \
	aio/commit.h aio/commit.c aio/commit_recover.c aio/commit_record.h aio/commit_record.c \
	aio/steps.h aio/steps_private.h aio/steps.c aio/steps_list.c aio/steps_verify.c
if HAVE_AVX2
noinst_LTLIBRARIES += libpage_sum_avx2.la
libpage_sum_avx2_la_SOURCES = aio/page_sum_avx2.c
libpage_sum_avx2_la_CFLAGS = $(AM_CFLAGS) -O3 $(AVX2_CFLAGS)
libcore_la_LIBADD += libpage_sum_avx2.la
endif
INSTALLED_H += aio/aio.h aio/drive_bench.h
EXTRA_DIST += aio/commit.h aio/steps.h

AIO_TESTS = tests/aio/aio_files_test tests/aio/aio_test tests/aio/aio_faults_test tests/aio/aio_store_test tests/aio/aio_space_test \
	tests/aio/aio_stripe_test tests/aio/aio_bench_test tests/aio/commit_test \
	tests/aio/commit_cases_test tests/aio/steps_test
program_tests += $(AIO_TESTS)
# Runs those tests and others under the limits of containers.
check_PROGRAMS += tests/aio/restricted
script_tests += tests/aio/aio_restricted_test.sh

# Sees only the public header, as a program outside would.
noinst_PROGRAMS += examples/copy_file
examples_copy_file_SOURCES = examples/copy_file.c
examples_copy_file_CPPFLAGS = -I$(srcdir)/examples/include -I$(srcdir)/src -I$(srcdir)
examples_copy_file_LDADD = libzinf.la
script_tests += tests/aio/copy_file_test.sh
EXTRA_DIST += examples/include/zinf/aio.h
dist_man_MANS += man/zinf_aio.3

# Measurements, not tests; the first is what tests/bench/nvme_vs_fio.sh runs.
noinst_PROGRAMS += tests/bench/drive_bench tests/bench/checksum_bench
EXTRA_DIST += tests/bench/nvme_vs_fio.sh tests/bench/step_vs_nvme.sh
