libcore_la_SOURCES += src/config/config.h src/config/config_private.h \
	src/config/config_table.c src/config/config_choices.h src/config/config_rows.h src/config/config_aliases.c src/config/config_names.c src/config/config_value.c \
	src/config/config_entry.c src/config/config_load.c src/config/config_read.c src/config/config_hjson.c src/config/config_yaml.c src/config/config_foreign.c \
	src/config/config_context.c src/config/config_trainer.c src/config/config_auto.c \
	src/config/config_batch.c src/config/config_check.c src/config/config_print.c
dist_man_MANS += man/zinf-config.5

program_tests += tests/config/config_test tests/config/config_files_test \
	tests/config/config_errors_test
EXTRA_DIST += tests/fixtures/config/hf_zero3_nvme_auto.json \
	tests/fixtures/config/hf_zero3_cpu_auto.json \
	tests/fixtures/config/zero2_cpu_offload_old_names.json \
	tests/fixtures/config/zero_true.json tests/fixtures/config/minimal_fp32.json \
	tests/fixtures/config/zero3_stage3_short_names.json \
	tests/fixtures/config/tuned_aio_strings.json tests/fixtures/config/monitors.json \
	tests/fixtures/config/pretrain_megatron_style.json \
	tests/fixtures/config/lr_range_test_sgd.json tests/fixtures/config/one_cycle_lion.json \
	tests/fixtures/config/adagrad_defaults.json tests/fixtures/config/accelerate_style.json \
	tests/fixtures/config/zinf_section.json tests/fixtures/config/hostile_nulls.json

program_tests += tests/config/config_corpus_test
EXTRA_DIST += tests/fixtures/config_corpus

program_tests += tests/fuzz_config
tests_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c tests/fuzz/driver.c
tests_fuzz_config_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"config"'
EXTRA_DIST += tests/fuzz/corpus/config
