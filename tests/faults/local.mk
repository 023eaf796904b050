# Damage, lost writes and failing calls against whole trainings; short here, long by hand.
fault_tests = tests/faults/damage_test tests/faults/inputs_test tests/faults/writes_test tests/faults/mutants_test tests/faults/chunks_test
fault_headers = tests/faults/faults.h tests/faults/settings.h tests/faults/folders.h
fault_cppflags = $(TEST_CPPFLAGS) -I$(srcdir)/tests/faults
fault_ldflags = $(AM_LDFLAGS) -Wl,--wrap=statfs
fault_ldadd = libcli.la $(TEST_LDADD)
program_tests += $(fault_tests)
tests_faults_damage_test_SOURCES = tests/faults/damage_test.c tests/faults/damage.h tests/faults/regions.h \
	tests/faults/outcomes.h tests/faults/killed.h $(fault_headers)
tests_faults_damage_test_CPPFLAGS = $(fault_cppflags)
tests_faults_damage_test_LDADD = $(fault_ldadd)
tests_faults_damage_test_LDFLAGS = $(fault_ldflags)
tests_faults_inputs_test_SOURCES = tests/faults/inputs_test.c tests/faults/damage.h tests/faults/regions.h \
	tests/faults/outcomes.h tests/faults/killed.h tests/faults/uses.h $(fault_headers)
tests_faults_inputs_test_CPPFLAGS = $(fault_cppflags)
tests_faults_inputs_test_LDADD = $(fault_ldadd)
tests_faults_inputs_test_LDFLAGS = $(fault_ldflags)
tests_faults_chunks_test_SOURCES = tests/faults/chunks_test.c tests/faults/damage.h tests/faults/regions.h tests/faults/shimmed.h \
	tests/faults/outcomes.h tests/faults/killed.h $(fault_headers)
tests_faults_chunks_test_CPPFLAGS = $(fault_cppflags)
tests_faults_chunks_test_LDADD = $(fault_ldadd)
tests_faults_chunks_test_LDFLAGS = $(fault_ldflags)
tests_faults_writes_test_SOURCES = tests/faults/writes_test.c tests/faults/shimmed.h $(fault_headers)
tests_faults_writes_test_CPPFLAGS = $(fault_cppflags)
tests_faults_writes_test_LDADD = $(fault_ldadd)
tests_faults_writes_test_LDFLAGS = $(fault_ldflags)
tests_faults_mutants_test_SOURCES = tests/faults/mutants_test.c tests/faults/damage.h tests/faults/regions.h \
	tests/faults/outcomes.h tests/faults/killed.h $(fault_headers)
tests_faults_mutants_test_CPPFLAGS = $(fault_cppflags)
tests_faults_mutants_test_LDADD = $(fault_ldadd)
tests_faults_mutants_test_LDFLAGS = $(fault_ldflags),--wrap=zinf_store_sums_verify \
	-Wl,--wrap=zinf_store_sums_record,--wrap=checkpoint_verify,--wrap=zinf_steps_plan_read \
	-Wl,--wrap=output_publish
script_tests += tests/faults/verify_test.sh tests/faults/process_test.sh \
	tests/faults/neighbours_test.sh tests/faults/promises_test.sh
# Preloaded into the command; -rpath makes a convenience library a shared one.
noinst_LTLIBRARIES += tests/faults/shim.la
tests_faults_shim_la_SOURCES = tests/faults/shim.c tests/faults/shim_machine.c
tests_faults_shim_la_CFLAGS = -O1 -g -Wall -Wextra
tests_faults_shim_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_faults_shim_la_LIBADD = -ldl
