libcore_la_SOURCES += src/train/train.h src/train/estimate.h src/train/trainer.h src/train/setup.h src/train/setup.c src/train/token_source.c \
	src/train/setup_optimizer.c src/train/op.h src/train/step/step.h src/train/save/save.h \
	src/train/plan/lines.h src/train/plan/way.h src/train/plan/way.c src/train/plan/itinerary.h src/train/plan/itinerary.c src/train/step/emit.h src/train/step/lr.c src/train/step/scales.h \
	src/train/step/loss_scale.c src/train/run/sample.c src/train/plan/plan.c src/train/plan/plan.h \
	src/train/plan/plan_places.c src/train/plan/plan_slots.c src/train/plan/plan_lines.c src/train/plan/search.c src/train/plan/plan_choose.c \
	src/train/plan/walk.c src/train/plan/walk_sizes.c src/train/plan/walk.h \
	src/train/step/programs.c src/train/step/emit_values.c src/train/step/emit_choice.c src/train/step/emit_fetch.c \
	src/train/step/batch.c src/train/step/chunk_rows.c src/train/step/visited.c src/train/step/shared_keys.c src/train/step/losses.c src/train/step/rewards.c src/train/step/embeddings.c src/train/step/embedded.c src/train/step/pairs.c src/train/op.c src/train/step/run_stage.c \
	src/train/step/emitter.c src/train/step/emit_cache.c src/train/step/emit_border.c src/train/step/emit_shared.c src/train/step/decode.c src/train/step/cache_ops.c \
	src/train/checkpoints.h src/train/score.h src/train/seats.h src/train/run/shared_texts.h \
	src/train/run/shared_texts.c src/train/run/score.c src/train/run/reference.h src/train/run/reference.c src/train/run/run_embed.c src/train/run/score_labels.c src/train/run/score_choices.c src/train/decode.h src/train/generate.h src/train/run/generate.c \
	src/train/run/whole.h src/train/run/whole.c src/train/run/sources.h src/train/run/sources.c src/train/run/beams.h src/train/run/beams.c src/train/run/generate_beams.c \
	src/train/step/emit.c src/train/step/emit_grad.c src/train/step/emit_swept.c src/train/step/emit_update.c src/train/step/ops.c \
	src/train/step/update.c src/train/rules/rules.h src/train/rules/rules.c src/train/rules/state.c src/train/rules/packed.c src/train/rules/packed_change.c \
	src/train/rules/elements.c src/train/rules/factored.c src/train/rules/matrix.h src/train/rules/matrix.c src/train/rules/matrix_parts.c src/train/rules/matrix_ranks.h src/train/rules/matrix_ranks.c src/train/rules/matrix_walk.c src/train/rules/matrices.c src/train/rules/leading.h src/train/rules/leading.c src/train/rules/projected.c \
	src/train/plan/cost.c src/train/step/calibrate.c src/train/plan/estimate.c src/train/plan/estimated.h \
	src/train/plan/estimated.c src/train/save/durable.c src/train/save/copies.c \
	src/train/step/schedules.c src/train/trainer.c src/train/step/step.c src/train/step/forward.c \
	src/train/save/transfer.c src/train/save/transfer.h src/train/save/weights.c src/train/save/transfer_load.c src/train/save/transfer_save.c src/train/save/transfer_carried.c \
	src/train/save/transfer_new.c src/train/save/transfer_magnitude.c src/train/setup_rates.h src/train/setup_rates.c src/train/save/merge.h src/train/save/merge.c src/train/save/changes.h src/train/save/changes.c src/train/save/identity.h src/train/save/identity.c src/train/save/identity_file.c src/train/save/products.c src/train/save/inputs.h src/train/save/inputs.c src/train/save/merge_base.c src/train/save/merge_module.c src/train/save/join.c src/train/save/transfer_factors.c src/train/save/transfer_kept.c src/train/save/state_access.c \
	src/train/save/checkpoint.h src/train/save/checkpoint_state.c src/train/save/checkpoint_files.c \
	src/train/save/checkpoint_save.c src/train/save/checkpoint_background.c \
	src/train/save/checkpoint_load.c src/train/save/checkpoint_foreign.c src/train/save/gguf.h \
	src/train/save/gguf_family.c src/train/save/gguf_vocab.c src/train/save/gguf_export.c src/train/save/gguf_import.c src/train/save/layers_import.c src/train/save/gguf_tokenizer.c src/train/save/checkpoint_export.c src/train/save/checkpoint_list.c \
	src/train/save/output.h src/train/save/output.c src/train/run/run.h src/train/run/run.c \
	src/train/run/run_best.c src/train/run/run_checkpoint.c src/train/run/run_output.c src/train/run/run_name.c src/train/run/run_identity.c src/train/run/run_steps.c src/train/run/run_prompts.c src/train/run/run_log.c src/train/run/run_log.h \
	src/train/run/run_batch.h src/train/run/run_batch.c
# Several ranks.
libcore_la_SOURCES += src/train/plan/plan_print.c src/train/plan/plan_operations.c src/train/setup_ranks.c src/train/setup_matrices.c src/train/setup_updaters.c src/train/setup_chunks.c src/train/setup_context.c src/train/step/emit_carried.c src/train/step/emit_keys.c src/train/step/emit_call.h src/train/step/emit_call.c src/train/step/emit_parts.c src/train/step/emit_pieces.c src/train/step/predictions.c src/train/setup_tensor.c src/train/setup_pipe.c src/train/setup_deal.h src/train/setup_deal.c src/train/step/shard_ranks.c src/train/save/whole_unit.c src/train/step/agree.h src/train/step/agree.c \
	src/train/step/exact_sum.h src/train/step/emit_way.c src/train/save/collect.c \
	src/train/run/run_ranks.c src/train/run/run_seats.c src/train/run/run_steps_ranks.c \
	src/train/save/durable_ranks.c
program_tests += tests/train/train_net_test tests/train/tensor_bytes_test
program_tests += tests/train/rule_work_test tests/train/tensor_updates_test
script_tests += tests/ranks/matrices_test.sh tests/ranks/ranks_test.sh tests/ranks/pipeline_test.sh tests/ranks/plan_ranks_test.sh

# A frozen base.
libcore_la_SOURCES += src/train/setup_frozen.c src/train/setup_files.c src/train/setup_codes.c src/train/save/transfer_quantized.c
INSTALLED_H += src/train/checkpoints.h

TRAIN_TESTS = tests/train/train_fixtures_test tests/train/train_placement_test tests/train/train_schedules_test \
	tests/train/train_units_test tests/train/packed_state_test tests/train/train_optimizers_test tests/train/optimizer_mix_test \
	tests/train/train_matrices_test tests/train/leading_test
program_tests += $(TRAIN_TESTS)

SAVED_TESTS = tests/train/train_families_test tests/train/carried_test
program_tests += $(SAVED_TESTS)

program_tests += tests/train/gguf_export_test
EXTRA_DIST += tests/fixtures/make_gguf.py tests/fixtures/gguf
program_tests += tests/train/train_experts_test
program_tests += tests/train/train_expert_adapters_test

program_tests += tests/train/plan_test tests/train/ceilings_test tests/train/way_test tests/train/itinerary_test

program_tests += tests/train/calibrate_test tests/train/agree_test

CHECKPOINT_TESTS = tests/train/checkpoint_test tests/train/checkpoint_output_test tests/train/checkpoint_refused_test
program_tests += $(CHECKPOINT_TESTS) tests/train/durable_test

program_tests += tests/train/soak_test

ADAPTER_TESTS = tests/train/train_adapter_test tests/train/train_adapter_forms_test tests/train/train_freeze_test tests/train/train_quantized_test tests/train/train_in_place_test
program_tests += $(ADAPTER_TESTS)

program_tests += tests/train/generate_test tests/train/generate_pairs_test

program_tests += tests/train/rules_test
EXTRA_DIST += tests/fixtures/make_rules.py tests/fixtures/rules.json
program_tests += tests/train/beams_test
EXTRA_DIST += tests/fixtures/make_beams.py tests/fixtures/beams.json \
	tests/compare/against_beams.py

# Several documents in a sample.
program_tests += tests/train/train_packed_test

# Encoder-decoders.
program_tests += tests/train/train_chunks_test tests/train/short_rows_test tests/train/chunk_bytes_test tests/train/chunk_memory_test \
	tests/train/train_parts_test tests/train/train_turns_test
program_tests += tests/train/train_lengths_test tests/train/train_pairs_test tests/train/train_embeddings_test tests/train/chunked_losses_test tests/train/relative_chunks_test \
	tests/train/train_losses_test

program_tests += tests/train/paraphrases_test
# Steps of several ranks on their drives.
program_tests += tests/train/durable_ranks_test
script_tests += tests/ranks/ranks_kill_test.sh tests/ranks/ranks_network_test.sh
# Adapters of a quantised model over ranks.
script_tests += tests/ranks/ranks_quantized_test.sh tests/ranks/eval_ranks_test.sh \
	tests/ranks/quantized_resume_test.sh

# Seats of one process.
program_tests += tests/train/train_seats_test
script_tests += tests/ranks/seats_test.sh
script_tests += tests/ranks/tensor_test.sh tests/ranks/context_test.sh tests/ranks/gdgpt_test.sh \
	tests/ranks/gpus_test.sh tests/ranks/tensor_kinds_test.sh tests/ranks/tensor_matrices_test.sh tests/ranks/tensor_tasks_test.sh tests/ranks/product_test.sh \
	tests/ranks/context_kinds_test.sh tests/ranks/context_pairs_test.sh tests/ranks/drawn_chunks_test.sh tests/ranks/drawn_chunks_long_test.sh \
	tests/ranks/context_encoders_test.sh tests/ranks/context_classes_test.sh \
	tests/ranks/mesh_texts_test.sh

# Two ranks against PyTorch's.
script_tests += tests/ranks/ddp_test.sh
EXTRA_DIST += tests/fixtures/make_ddp.py tests/fixtures/ddp.json
