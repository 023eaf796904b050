libcore_la_SOURCES += src/train/train.h src/train/estimate.h src/train/trainer.h src/train/setup.h src/train/setup.c \
	src/train/setup_optimizer.c src/train/setup_shape.c src/train/op.h src/train/step/step.h src/train/save/save.h \
	src/train/plan/lines.h src/train/plan/route.h src/train/plan/route.c src/train/step/emit.h src/train/step/lr.c src/train/step/scales.h \
	src/train/step/loss_scale.c src/train/run/sample.c src/train/plan/plan.c src/train/plan/plan.h \
	src/train/plan/plan_places.c src/train/plan/plan_lines.c src/train/plan/search.c src/train/plan/plan_choose.c \
	src/train/plan/walk.c src/train/plan/walk_sizes.c src/train/plan/walk.h \
	src/train/step/programs.c src/train/step/emit_values.c src/train/step/emit_choice.c src/train/step/emit_fetch.c \
	src/train/step/batch.c src/train/step/rewards.c src/train/op.c src/train/step/run_stage.c \
	src/train/step/emitter.c src/train/step/emit_cache.c src/train/step/decode.c src/train/step/cache_ops.c \
	src/train/checkpoints.h src/train/score.h src/train/seats.h src/train/run/shared_texts.h \
	src/train/run/shared_texts.c src/train/run/score.c src/train/run/score_labels.c src/train/decode.h src/train/generate.h src/train/run/generate.c \
	src/train/run/whole.h src/train/run/whole.c src/train/run/sources.h src/train/run/sources.c src/train/run/beams.h src/train/run/beams.c src/train/run/generate_beams.c \
	src/train/step/emit.c src/train/step/emit_grad.c src/train/step/emit_swept.c src/train/step/emit_update.c src/train/step/ops.c \
	src/train/step/update.c \
	src/train/plan/cost.c src/train/step/calibrate.c src/train/step/lengths.c src/train/plan/estimate.c src/train/plan/estimated.h \
	src/train/plan/estimated.c src/train/emulation.h src/train/plan/emulation.c src/train/save/durable.c \
	src/train/step/schedules.c src/train/trainer.c src/train/step/step.c src/train/step/forward.c \
	src/train/save/transfer.c src/train/save/transfer.h src/train/save/weights.c src/train/save/transfer_load.c src/train/save/transfer_save.c \
	src/train/save/transfer_new.c src/train/save/transfer_rest.c src/train/save/transfer_magnitude.c src/train/setup_rates.h src/train/setup_rates.c src/train/save/merge.h src/train/save/merge.c src/train/save/base_identity.h src/train/save/base_identity.c src/train/save/merge_module.c src/train/save/join.c src/train/save/transfer_factors.c src/train/save/state_access.c \
	src/train/save/checkpoint.h src/train/save/checkpoint_state.c src/train/save/checkpoint_files.c \
	src/train/save/checkpoint_save.c src/train/save/checkpoint_background.c \
	src/train/save/checkpoint_load.c src/train/save/checkpoint_export.c src/train/save/checkpoint_list.c \
	src/train/save/output.h src/train/save/output.c src/train/run/run.h src/train/run/run.c \
	src/train/run/run_best.c src/train/run/run_checkpoint.c src/train/run/run_output.c src/train/run/run_name.c src/train/run/run_steps.c src/train/run/run_log.c src/train/run/run_log.h \
	src/train/run/run_batch.h src/train/run/run_batch.c
# Several ranks.
libcore_la_SOURCES += src/train/plan/plan_print.c src/train/setup_ranks.c src/train/step/agree.h src/train/step/agree.c \
	src/train/step/exact_sum.h src/train/step/emit_net.c src/train/save/collect.c \
	src/train/run/run_ranks.c src/train/run/run_seats.c src/train/run/run_steps_ranks.c \
	src/train/run/run_times.c src/train/save/durable_ranks.c
check_PROGRAMS += tests/train_net_test
TESTS += tests/train_net_test tests/ranks_test.sh
EXTRA_DIST += tests/ranks_test.sh
tests_train_net_test_SOURCES = tests/train_net_test.c tests/trained_ranks.h tests/rank_steps.h tests/trainings.h tests/train_support.h
tests_train_net_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_net_test_LDADD = $(TEST_LDADD)

# A frozen base.
libcore_la_SOURCES += src/train/setup_frozen.c src/train/setup_files.c src/train/save/transfer_quantized.c
INSTALLED_H += src/train/train.h src/train/estimate.h src/train/decode.h src/train/generate.h src/train/checkpoints.h


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

SAVED_TESTS = tests/train_families_test tests/rank_files_test
check_PROGRAMS += $(SAVED_TESTS)
TESTS += $(SAVED_TESTS)
EXTRA_DIST += tests/saved.h
tests_train_families_test_SOURCES = tests/train_families_test.c tests/trainings.h \
	tests/train_support.h
tests_train_families_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_families_test_LDADD = $(TEST_LDADD)
tests_rank_files_test_SOURCES = tests/rank_files_test.c tests/trainings.h tests/train_support.h
tests_rank_files_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rank_files_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/train_ranks_test
TESTS += tests/train_ranks_test
tests_train_ranks_test_SOURCES = tests/train_ranks_test.c tests/trainings.h tests/train_support.h
tests_train_ranks_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_ranks_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/train_experts_test
TESTS += tests/train_experts_test
tests_train_experts_test_SOURCES = tests/train_experts_test.c tests/trainings.h tests/train_support.h
tests_train_experts_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_experts_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/plan_test
TESTS += tests/plan_test
tests_plan_test_SOURCES = tests/plan_test.c tests/trainings.h tests/train_support.h
tests_plan_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_plan_test_LDADD = $(TEST_LDADD)

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

ADAPTER_TESTS = tests/train_adapter_test tests/train_adapter_forms_test tests/train_freeze_test tests/train_quantized_test tests/train_in_place_test
check_PROGRAMS += $(ADAPTER_TESTS)
TESTS += $(ADAPTER_TESTS)
tests_train_in_place_test_SOURCES = tests/train_in_place_test.c tests/trainings.h tests/train_support.h
tests_train_in_place_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_in_place_test_LDADD = $(TEST_LDADD)
tests_train_quantized_test_SOURCES = tests/train_quantized_test.c tests/trainings.h tests/train_support.h
tests_train_quantized_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_quantized_test_LDADD = $(TEST_LDADD)
tests_train_adapter_test_SOURCES = tests/train_adapter_test.c tests/trainings.h \
	tests/train_support.h
tests_train_adapter_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_freeze_test_SOURCES = tests/train_freeze_test.c tests/trainings.h tests/saved.h
tests_train_freeze_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_freeze_test_LDADD = $(TEST_LDADD)
tests_train_adapter_forms_test_SOURCES = tests/train_adapter_forms_test.c tests/trainings.h \
	tests/saved.h
tests_train_adapter_forms_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_adapter_forms_test_LDADD = $(TEST_LDADD)
tests_train_adapter_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/generate_test
TESTS += tests/generate_test
tests_generate_test_SOURCES = tests/generate_test.c tests/generate_support.h tests/train_support.h
tests_generate_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_generate_test_LDADD = $(TEST_LDADD)
check_PROGRAMS += tests/generate_pairs_test
TESTS += tests/generate_pairs_test
tests_generate_pairs_test_SOURCES = tests/generate_pairs_test.c tests/generate_support.h tests/train_support.h
tests_generate_pairs_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_generate_pairs_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/beams_test
TESTS += tests/beams_test
tests_beams_test_SOURCES = tests/beams_test.c tests/train_support.h
tests_beams_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_beams_test_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fixtures/make_beams.py tests/fixtures/beams.json \
	tests/compare/against_beams.py

# Several documents in a sample.
check_PROGRAMS += tests/train_packed_test
TESTS += tests/train_packed_test
tests_train_packed_test_SOURCES = tests/train_packed_test.c tests/trainings.h tests/train_support.h
tests_train_packed_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_packed_test_LDADD = $(TEST_LDADD)

# Encoder-decoders.
check_PROGRAMS += tests/train_lengths_test
TESTS += tests/train_lengths_test
tests_train_lengths_test_SOURCES = tests/train_lengths_test.c tests/cut_fixtures.h tests/fixture_inputs.h tests/trainings.h tests/train_support.h
tests_train_lengths_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_lengths_test_LDADD = $(TEST_LDADD)
check_PROGRAMS += tests/train_pairs_test
TESTS += tests/train_pairs_test
tests_train_pairs_test_SOURCES = tests/train_pairs_test.c tests/fixture_inputs.h tests/trainings.h tests/train_support.h
tests_train_pairs_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_pairs_test_LDADD = $(TEST_LDADD)
check_PROGRAMS += tests/train_losses_test
TESTS += tests/train_losses_test
tests_train_losses_test_SOURCES = tests/train_losses_test.c tests/fixture_inputs.h tests/trainings.h tests/train_support.h
tests_train_losses_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_losses_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/paraphrases_test
TESTS += tests/paraphrases_test
tests_paraphrases_test_SOURCES = tests/paraphrases_test.c tests/train_support.h
tests_paraphrases_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_paraphrases_test_LDADD = $(TEST_LDADD)
# Steps of several ranks on their drives.
check_PROGRAMS += tests/durable_ranks_test
TESTS += tests/durable_ranks_test tests/ranks_kill_test.sh tests/ranks_network_test.sh
EXTRA_DIST += tests/ranks_kill_test.sh tests/ranks_network_test.sh
# Adapters of a quantised model over ranks.
TESTS += tests/ranks_quantized_test.sh tests/eval_ranks_test.sh
EXTRA_DIST += tests/ranks_quantized_test.sh tests/eval_ranks_test.sh
tests_durable_ranks_test_SOURCES = tests/durable_ranks_test.c tests/rank_steps.h tests/trainings.h tests/train_support.h
tests_durable_ranks_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_durable_ranks_test_LDADD = $(TEST_LDADD)

# Seats of one process.
check_PROGRAMS += tests/train_seats_test
TESTS += tests/train_seats_test tests/seats_test.sh
EXTRA_DIST += tests/seats_test.sh
tests_train_seats_test_SOURCES = tests/train_seats_test.c tests/trained_ranks.h tests/rank_steps.h tests/trainings.h tests/train_support.h
tests_train_seats_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_seats_test_LDADD = $(TEST_LDADD)

# Two ranks against PyTorch's.
TESTS += tests/ddp_test.sh
EXTRA_DIST += tests/ddp_test.sh tests/fixtures/make_ddp.py tests/fixtures/ddp.json
