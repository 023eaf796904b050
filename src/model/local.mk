libcore_la_SOURCES += src/model/model.h src/model/graph.h src/model/frame.h src/model/model.c src/model/family.c \
	src/model/family.h src/model/family_config.c src/model/build.h src/model/build.c src/model/build_check.h \
	src/model/build_check.c src/model/frame.c src/model/frame_ops.c src/model/stages.h \
	src/model/frame_linear.c src/model/part.c src/model/part_attention.c src/model/part_cached.c \
	src/model/part_distance.c src/model/part_mlp.c src/model/stage_block.c src/model/preference.h \
	src/model/preference.c src/model/stage_preference.c src/model/stage_head.h src/model/stage_head.c \
	src/model/stage_head_units.c src/model/stage_lookup.c src/model/stage_norm.c src/model/decoder.h \
	src/model/decoder.c src/model/decoder_units.h src/model/decoder_units.c src/model/rope.h src/model/rope.c src/model/family_rotary.h src/model/family_rotary.c \
	src/model/family_rotary_config.c src/model/family_llama.c src/model/family_mistral.c \
	src/model/family_qwen2.c src/model/family_qwen3.c src/model/tensors.h src/model/tensors.c src/model/file_map.c \
	src/model/family_gpt2.c
libcore_la_SOURCES += src/model/quantize.h src/model/quantize.c src/model/frame_matrix.c
libcore_la_SOURCES += src/model/companion.h src/model/companion.c src/model/frame_adapter.h src/model/frame_adapter.c \
	src/model/frame_magnitude.c src/model/frame_dropped.c \
	src/model/adapter_attach.h src/model/adapter_copies.c src/model/adapter_names.c \
	src/model/freeze.h src/model/freeze.c src/model/frame_gaps.c
libcore_la_SOURCES += src/model/adapter.h src/model/adapter.c src/model/adapter_config.c \
	src/model/adapter_describe.c src/model/adapter_compare.c src/model/adapter_module.c
libcore_la_SOURCES += src/model/family_decoder.h src/model/family_decoder.c \
	src/model/family_decoder_config.c
libcore_la_SOURCES += src/model/family_phi3.c
libcore_la_SOURCES += src/model/family_gpt_neox.c
libcore_la_SOURCES += src/model/family_starcoder2.c
libcore_la_SOURCES += src/model/family_olmo2.c
libcore_la_SOURCES += src/model/family_opt.c
libcore_la_SOURCES += src/model/family_falcon.c
libcore_la_SOURCES += src/model/family_chatglm.c
libcore_la_SOURCES += src/model/family_bloom.c
libcore_la_SOURCES += src/model/family_baichuan.c
libcore_la_SOURCES += src/model/family_gemma.c
libcore_la_SOURCES += src/model/family_gemma2.c
libcore_la_SOURCES += src/model/family_gemma3_text.c
libcore_la_SOURCES += src/model/family_gemma.h
libcore_la_SOURCES += src/model/decoder_parts.h src/model/decoder_parts.c src/model/decoder_classes.c src/model/decoder_experts.c \
	src/model/frame_choice.c src/model/stage_attention.c src/model/stage_router.c src/model/stage_experts.c \
	src/model/stage_shared.c src/model/stage_balance.c src/model/family_rotary_experts.c src/model/family_mixtral.c \
	src/model/family_qwen2_moe.c src/model/family_qwen3_moe.c
# Encoders, and decoders that read one.
libcore_la_SOURCES += src/model/stack.h src/model/stack.c src/model/stage_layer.c src/model/family_t5.c \
	src/model/stage_rows.c src/model/family_bart.h src/model/family_bart.c src/model/family_blenderbot.c \
	src/model/classes.h src/model/classes.c src/model/stack_parts.h src/model/stack_classify.c src/model/stage_classify.c \
	src/model/family_bert.h src/model/family_bert.c src/model/family_roberta.c
libcore_la_SOURCES += src/model/part_relative.c src/model/stack_tables.c src/model/stage_convolution.c \
	src/model/stage_project.c src/model/family_deberta_v2.c
INSTALLED_H += src/model/model.h src/model/graph.h src/model/tensors.h

MODEL_TESTS = tests/model_tensors_test tests/model_fixtures_test \
	tests/model_graph_test
check_PROGRAMS += $(MODEL_TESTS)
TESTS += $(MODEL_TESTS)
EXTRA_DIST += tests/model_frames.h tests/model_texts.h tests/fixture_folders.h
tests_model_tensors_test_SOURCES = tests/model_tensors_test.c
tests_model_tensors_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_tensors_test_LDADD = $(TEST_LDADD)
tests_model_fixtures_test_SOURCES = tests/model_fixtures_test.c
tests_model_fixtures_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_fixtures_test_LDADD = $(TEST_LDADD)
tests_model_graph_test_SOURCES = tests/model_graph_test.c
tests_model_graph_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_graph_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/model_adapter_test
TESTS += tests/model_adapter_test
tests_model_adapter_test_SOURCES = tests/model_adapter_test.c
tests_model_adapter_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_adapter_test_LDADD = $(TEST_LDADD)

# The stages around the blocks.
check_PROGRAMS += tests/model_head_test
TESTS += tests/model_head_test
tests_model_head_test_SOURCES = tests/model_head_test.c
tests_model_head_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_head_test_LDADD = $(TEST_LDADD)

MODEL_FAMILIES_TESTS = tests/model_families_test
check_PROGRAMS += $(MODEL_FAMILIES_TESTS)
TESTS += $(MODEL_FAMILIES_TESTS)
tests_model_families_test_SOURCES = tests/model_families_test.c
tests_model_families_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_families_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/model_stack_test
TESTS += tests/model_stack_test
tests_model_stack_test_SOURCES = tests/model_stack_test.c
tests_model_stack_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_model_stack_test_LDADD = $(TEST_LDADD)
