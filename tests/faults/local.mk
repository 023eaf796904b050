# Damage, lost writes and failing calls against whole trainings; short here, long by hand.
FAULT_TESTS = tests/faults/damage_test tests/faults/writes_test
check_PROGRAMS += $(FAULT_TESTS)
TESTS += $(FAULT_TESTS)
EXTRA_DIST += tests/faults/faults.h tests/faults/damage.h
tests_faults_damage_test_SOURCES = tests/faults/damage_test.c
tests_faults_damage_test_CPPFLAGS = $(TEST_CPPFLAGS) -I$(srcdir)/tests/faults
tests_faults_damage_test_LDADD = $(TEST_LDADD)
TESTS += tests/faults/verify_test.sh tests/faults/process_test.sh
EXTRA_DIST += tests/faults/verify_test.sh tests/faults/process_test.sh
tests_faults_writes_test_SOURCES = tests/faults/writes_test.c
tests_faults_writes_test_CPPFLAGS = $(TEST_CPPFLAGS) -I$(srcdir)/tests/faults
tests_faults_writes_test_LDADD = $(TEST_LDADD)
# Preloaded into the command; -rpath makes a convenience library a shared one.
noinst_LTLIBRARIES += tests/faults/shim.la
tests_faults_shim_la_SOURCES = tests/faults/shim.c
tests_faults_shim_la_CFLAGS = -O1 -g -Wall -Wextra
tests_faults_shim_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_faults_shim_la_LIBADD = -ldl
