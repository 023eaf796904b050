# Damage, lost writes and failing calls against whole trainings; short here, long by hand.
FAULT_TESTS = tests/faults/damage_test
check_PROGRAMS += $(FAULT_TESTS)
TESTS += $(FAULT_TESTS)
EXTRA_DIST += tests/faults/faults.h tests/faults/damage.h
tests_faults_damage_test_SOURCES = tests/faults/damage_test.c
tests_faults_damage_test_CPPFLAGS = $(TEST_CPPFLAGS) -I$(srcdir)/tests/faults
tests_faults_damage_test_LDADD = $(TEST_LDADD)
TESTS += tests/faults/verify_test.sh
EXTRA_DIST += tests/faults/verify_test.sh
