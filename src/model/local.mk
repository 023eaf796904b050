libcore_la_SOURCES += src/model/model.h src/model/graph.h src/model/frame.h src/model/model.c src/model/families/family.c \
	src/model/families/family.h src/model/families/family_config.c src/model/build.h src/model/build.c src/model/build_check.h \
	src/model/build_check.c src/model/frame.c src/model/frame_ops.c src/model/frame_cost.c src/model/frame_cost.h src/model/stages/stages.h \
	src/model/frame_linear.c src/model/stages/part.c src/model/stages/part_attention.c src/model/stages/part_heads.h src/model/stages/part_heads.c \
	src/model/stages/part_source.c src/model/stages/part_carry.c src/model/stages/part_cached.c src/model/stages/part_chunk.c src/model/stages/part_latent.c src/model/stages/part_mixer.c src/model/stages/part_gates.c src/model/stages/part_handed.c \
	src/model/stages/part_distance.c src/model/stages/part_mlp.c src/model/stages/stage_joined.c src/model/stages/stage_block.c src/model/preference.h \
	src/model/preference.c src/model/stages/stage_preference.c src/model/stages/stage_head.h src/model/stages/stage_head.c \
	src/model/stages/stage_head_units.c src/model/stages/stage_lookup.c src/model/stages/stage_norm.c src/model/decoder.h \
	src/model/decoder.c src/model/decoder_units.h src/model/decoder_units.c src/model/rope.h src/model/rope.c src/model/families/llama.c src/model/families/mistral.c \
	src/model/families/qwen2.c src/model/families/qwen3.c src/model/tensors.h src/model/tensors.c src/model/file_map.c \
	src/model/families/gpt2.c src/model/range.h src/model/range.c
libcore_la_SOURCES += src/model/quantize.h src/model/quantize.c src/model/frame_matrix.c
libcore_la_SOURCES += src/model/companion.h src/model/companion.c src/model/frame_adapter.h src/model/frame_adapter.c \
	src/model/frame_magnitude.c src/model/frame_dropped.c \
	src/model/adapters/adapter_attach.h src/model/adapters/adapter_copies.c src/model/adapters/adapter_names.c src/model/adapters/adapter_stack.c \
	src/model/adapters/adapter_parts.c src/model/adapters/adapter_shards.c \
	src/model/freeze.h src/model/freeze.c src/model/frame_gaps.c
libcore_la_SOURCES += src/model/adapters/adapter.h src/model/adapters/adapter.c src/model/adapters/adapter_config.c \
	src/model/adapters/adapter_describe.c src/model/adapters/adapter_compare.c src/model/adapters/adapter_module.c
libcore_la_SOURCES += src/model/families/family_decoder.h src/model/families/family_decoder.c \
	src/model/families/family_decoder_config.c
libcore_la_SOURCES += src/model/families/phi3.c
libcore_la_SOURCES += src/model/families/gpt_neox.c
libcore_la_SOURCES += src/model/families/starcoder2.c
libcore_la_SOURCES += src/model/families/family_described.h src/model/families/family_described.c src/model/families/family_reading.h src/model/families/family_layers.c src/model/families/family_tensors.c src/model/families/family_latent.c src/model/families/family_mixer.c src/model/families/family_kinds.c src/model/families/apertus.c src/model/families/nemotron_h.c src/model/families/falcon_h1.c src/model/families/olmo_hybrid.c src/model/families/lfm2.c src/model/families/qwen3_next.c src/model/families/bamba.c src/model/families/deepseek.c \
	src/model/families/olmo2.c src/model/families/smollm3.c src/model/families/granite.c \
	src/model/families/seed_oss.c src/model/families/exaone4.c src/model/families/glm4.c \
	src/model/families/cohere.c src/model/families/ernie4_5.c src/model/families/hunyuan_dense.c \
	src/model/families/stablelm.c src/model/families/gpt_bigcode.c src/model/families/nemotron.c src/model/families/olmoe.c src/model/families/gpt_oss.c src/model/families/glm4_moe.c
libcore_la_SOURCES += src/model/families/opt.c
libcore_la_SOURCES += src/model/families/falcon.c src/model/families/gptj.c src/model/families/internlm2.c
libcore_la_SOURCES += src/model/families/chatglm.c
libcore_la_SOURCES += src/model/families/bloom.c
libcore_la_SOURCES += src/model/families/baichuan.c
libcore_la_SOURCES += src/model/families/gemma.c src/model/families/gemma4.c src/model/families/llama4.c src/model/composite.h src/model/families/family_composite.h \
	src/model/families/family_composite.c
libcore_la_SOURCES += src/model/decoder_parts.h src/model/decoder_parts.c src/model/decoder_classes.c src/model/decoder_experts.c \
	src/model/frame_choice.c src/model/stages/stage_attention.c src/model/stages/stage_mlp.c src/model/stages/stage_side.c src/model/stages/stage_sides.c src/model/decoder_sides.c src/model/stages/stage_router.c src/model/stages/stage_experts.c \
	src/model/stages/stage_shared.c src/model/stages/stage_balance.c src/model/families/family_experts.c src/model/families/mixtral.c \
	src/model/families/qwen2_moe.c src/model/families/qwen3_moe.c
# Encoders, and decoders that read one.
libcore_la_SOURCES += src/model/stack.h src/model/stack.c src/model/stages/stage_layer.c src/model/families/t5.c \
	src/model/stages/stage_rows.c src/model/families/bart.h src/model/families/bart.c src/model/families/blenderbot.c \
	src/model/classes.h src/model/classes.c src/model/heads.h src/model/heads.c src/model/stack_masked.c src/model/decoder_embeds.c src/model/stack_embeds.c src/model/stages/stage_pool.c src/model/stack_parts.h src/model/stack_classify.c src/model/stages/stage_classify.c \
	src/model/families/bert.h src/model/families/bert.c src/model/families/roberta.c
libcore_la_SOURCES += src/model/stages/part_relative.c \
	src/model/stages/part_whole_norms.c src/model/stages/part_latent_shards.c \
	src/model/stack_tables.c src/model/stages/stage_convolution.c \
	src/model/stages/stage_project.c src/model/families/deberta_v2.c

MODEL_TESTS = tests/model/model_tensors_test tests/model/model_fixtures_test \
	tests/model/model_graph_test
program_tests += $(MODEL_TESTS) tests/model/model_adapter_test

# The stages around the blocks.
program_tests += tests/model/model_head_test

MODEL_FAMILIES_TESTS = tests/model/model_families_test
program_tests += $(MODEL_FAMILIES_TESTS)

program_tests += tests/model/model_stack_test
# Tensor parallel: blocks shard by shard.
libcore_la_SOURCES += src/model/shards.h src/model/frame_shards.c src/model/frame_shard_adapters.c src/model/frame_shard_sums.c src/model/decoder_shards.h src/model/decoder_shards.c src/model/decoder_shard_rows.c src/model/decoder_mixer_shards.c src/model/decoder_turns.c src/model/stages/part_mixer_shards.c src/model/stages/stage_shards.c src/model/stages/stage_turns.c \
	src/model/stages/part_attention_shards.c src/model/stages/part_shard.h src/model/stages/part_shard_products.c \
	src/model/stages/part_shard_cached.c src/model/stages/part_shard_backward.c src/model/stages/part_shard_weights.c \
	src/model/stages/part_shard_whole.c src/model/stages/part_mlp_shards.c src/model/stages/stage_expert_shards.c \
	src/model/stages/stage_head_shards.c src/model/stages/stage_head_chunks.c
