# A machine of set rates under the lanes of a training: part of the command, not of the library.
libcli_la_SOURCES += src/bench/emulation.h src/bench/emulation.c src/bench/emulate.h src/bench/emulate.c \
	src/bench/paced_drive.h src/bench/paced_drive.c
BENCH_TESTS = tests/bench/emulate_test tests/bench/paced_drive_test
program_tests += $(BENCH_TESTS)
tests_bench_emulate_test_LDADD = libcli.la $(LDADD)
tests_bench_paced_drive_test_LDADD = libcli.la $(LDADD)
