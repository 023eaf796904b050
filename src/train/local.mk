libcore_la_SOURCES += src/train/train.h src/train/trainer.h src/train/emit.h src/train/lr.c \
	src/train/loss_scale.c src/train/sample.c src/train/plan.c src/train/plan.h \
	src/train/plan_places.c src/train/plan_lines.c src/train/search.c src/train/plan_choose.c src/train/plan_blas.c \
	src/train/place.c src/train/emitter.c \
	src/train/emit.c src/train/emit_grad.c src/train/emit_update.c src/train/ops.c \
	src/train/optimizer.c src/train/update.c \
	src/train/cost.c src/train/calibrate.c src/train/estimate.c src/train/durable.c \
	src/train/schedules.c src/train/trainer.c src/train/step.c \
	src/train/transfer.c src/train/transfer.h src/train/transfer_factors.c src/train/state_access.c \
	src/train/checkpoint.h src/train/checkpoint_state.c src/train/checkpoint_files.c \
	src/train/checkpoint_save.c src/train/checkpoint_background.c \
	src/train/checkpoint_load.c src/train/checkpoint_export.c src/train/checkpoint_list.c \
	src/train/output.h src/train/output.c src/train/run.h src/train/run.c \
	src/train/run_checkpoint.c src/train/run_output.c src/train/run_steps.c src/train/run_log.c src/train/run_log.h
INSTALLED_H += src/train/train.h


TRAIN_TESTS = tests/train_fixtures_test tests/train_placement_test tests/train_schedules_test \
	tests/train_units_test tests/train_optimizers_test
check_PROGRAMS += $(TRAIN_TESTS)
TESTS += $(TRAIN_TESTS)
tests_train_fixtures_test_SOURCES = tests/train_fixtures_test.c tests/train_support.h
tests_train_fixtures_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_fixtures_test_LDADD = $(TEST_LDADD)
tests_train_placement_test_SOURCES = tests/train_placement_test.c tests/trainings.h \
	tests/train_support.h
tests_train_placement_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_placement_test_LDADD = $(TEST_LDADD)
tests_train_units_test_SOURCES = tests/train_units_test.c tests/train_support.h
tests_train_units_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_units_test_LDADD = $(TEST_LDADD)
tests_train_optimizers_test_SOURCES = tests/train_optimizers_test.c tests/trainings.h \
	tests/train_support.h
tests_train_optimizers_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_optimizers_test_LDADD = $(TEST_LDADD)
tests_train_schedules_test_SOURCES = tests/train_schedules_test.c tests/trainings.h \
	tests/train_support.h
tests_train_schedules_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_schedules_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/calibrate_test
TESTS += tests/calibrate_test
tests_calibrate_test_SOURCES = tests/calibrate_test.c
tests_calibrate_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_calibrate_test_LDADD = $(TEST_LDADD)

CHECKPOINT_TESTS = tests/checkpoint_test tests/checkpoint_output_test tests/checkpoint_refused_test
check_PROGRAMS += $(CHECKPOINT_TESTS)
TESTS += $(CHECKPOINT_TESTS)
EXTRA_DIST += tests/checkpoint_support.h
tests_checkpoint_test_SOURCES = tests/checkpoint_test.c tests/train_support.h
tests_checkpoint_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_checkpoint_test_LDADD = $(TEST_LDADD)
tests_checkpoint_output_test_SOURCES = tests/checkpoint_output_test.c tests/train_support.h
tests_checkpoint_output_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_checkpoint_output_test_LDADD = $(TEST_LDADD)
tests_checkpoint_refused_test_SOURCES = tests/checkpoint_refused_test.c tests/train_support.h
tests_checkpoint_refused_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_checkpoint_refused_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/durable_test
TESTS += tests/durable_test
tests_durable_test_SOURCES = tests/durable_test.c tests/trainings.h \
	tests/train_support.h
tests_durable_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_durable_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/soak_test
TESTS += tests/soak_test
tests_soak_test_SOURCES = tests/soak_test.c tests/train_support.h
tests_soak_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_soak_test_LDADD = $(TEST_LDADD)
