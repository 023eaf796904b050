# Per-ISA files are libraries of their own, with their own flags. Nowhere in this folder may the
# compiler fuse a multiply and an add by itself: the bits would depend on it.
OPTIM_CFLAGS = $(AM_CFLAGS) -O3 -ffp-contract=off -fno-math-errno
OPTIM_INTERNAL = cpu_optim/optim_bench.h cpu_optim/optim_internal.h cpu_optim/vector_kernels.h \
	cpu_optim/reduce_kernels.h cpu_optim/moment_kernels.h \
	cpu_optim/formula_kernels.h cpu_optim/optim_kernels.h cpu_optim/adafactor_kernels.h \
	cpu_optim/pack.h cpu_optim/pack_internal.h cpu_optim/pack_kernels.h
INSTALLED_H += cpu_optim/optim.h

noinst_LTLIBRARIES += liboptim.la
liboptim_la_SOURCES = cpu_optim/optim.h $(OPTIM_INTERNAL) cpu_optim/optim.c \
	cpu_optim/optim_check.c cpu_optim/optim_reduce.c cpu_optim/optim_scalar.c \
	cpu_optim/optim_adafactor.c cpu_optim/optim_threads.c cpu_optim/optim_split.c cpu_optim/optim_pack.c \
	cpu_optim/optim_bench.c cpu_optim/pack.c cpu_optim/pack_change.c \
	cpu_optim/pack_scalar.c cpu_optim/pack_speed.c
liboptim_la_CFLAGS = $(OPTIM_CFLAGS)
libcore_la_LIBADD += liboptim.la
if HAVE_AVX2
noinst_LTLIBRARIES += liboptim_avx2.la
liboptim_avx2_la_SOURCES = cpu_optim/optim_avx2.c cpu_optim/pack_avx2.c
liboptim_avx2_la_CFLAGS = $(OPTIM_CFLAGS) $(AVX2_CFLAGS)
libcore_la_LIBADD += liboptim_avx2.la
endif
if HAVE_AVX512
noinst_LTLIBRARIES += liboptim_avx512.la
liboptim_avx512_la_SOURCES = cpu_optim/optim_avx512.c cpu_optim/pack_avx512.c
liboptim_avx512_la_CFLAGS = $(OPTIM_CFLAGS) $(AVX512_CFLAGS)
libcore_la_LIBADD += liboptim_avx512.la
endif

OPTIM_TESTS = tests/optim/optim_test tests/optim/optim_reduce_test tests/optim/optim_forms_test \
	tests/optim/optim_8bit_test tests/optim/optim_adafactor_test tests/optim/optim_more_test \
	tests/optim/pack_test
program_tests += $(OPTIM_TESTS)
EXTRA_DIST += tests/fixtures/make_optim.py tests/fixtures/optim_adamw.bin \
	tests/fixtures/optim_adam.bin tests/fixtures/optim_adam_plain.bin \
	tests/fixtures/optim_adagrad.bin tests/fixtures/optim_sgd.bin \
	tests/fixtures/optim_adafactor.bin tests/fixtures/optim_adafactor_vector.bin

dist_man_MANS += man/zinf_optim.3
noinst_PROGRAMS += examples/adamw_step tests/bench/pack_bench
examples_adamw_step_SOURCES = examples/adamw_step.c
examples_adamw_step_CPPFLAGS = -I$(srcdir)/examples/include -I$(srcdir)/src -I$(srcdir)
examples_adamw_step_LDADD = libzinf.la -lm
