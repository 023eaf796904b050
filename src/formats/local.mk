libcore_la_SOURCES += src/formats/formats.h src/formats/file_dtype.c \
	src/formats/file_span.h src/formats/file_span.c \
	src/formats/stream_file.h src/formats/stream_file.c \
	src/formats/safetensors.h src/formats/safetensors_header.c \
	src/formats/tensors_index.h src/formats/tensors_index.c \
	src/formats/tensors_layout.h src/formats/tensors_layout.c \
	src/formats/tensors_reader.h src/formats/tensors_open.c src/formats/tensors_reader.c src/formats/tensors_sum.c \
	src/formats/tensors_writer.c src/formats/tensors_view.h src/formats/tensors_view.c \
	src/formats/zip.h src/formats/zip.c src/formats/pickle.h src/formats/pickle_machine.h \
	src/formats/pickle.c src/formats/pickle_machine.c src/formats/pickle_ops.c \
	src/formats/pickle_torch.c src/formats/torch_file.h src/formats/torch_file.c \
	src/formats/deepspeed.h src/formats/deepspeed_folder.c src/formats/deepspeed_table.h src/formats/deepspeed_shards.c src/formats/deepspeed.c src/formats/layers_folder.c \
	src/formats/npy_header.h src/formats/npy_header.c src/formats/token_file.c \
	src/formats/gguf.h src/formats/gguf_file.c src/formats/gguf_values.c \
	src/formats/gguf_pack_k.c src/formats/gguf_blocks.c src/formats/gguf_writer.c src/formats/folder.c

FORMATS_TESTS = tests/formats/formats_test tests/formats/formats_folder_test tests/formats/formats_writer_test \
	tests/formats/formats_header_test tests/formats/formats_tokens_test tests/formats/formats_torch_test \
	tests/formats/formats_deepspeed_test tests/formats/formats_gguf_test tests/fuzz_safetensors \
	tests/fuzz_torch tests/fuzz_deepspeed tests/fuzz_gguf
program_tests += $(FORMATS_TESTS)
script_tests += tests/cli/gguf_model_test.sh tests/cli/torch_model_test.sh tests/cli/deepspeed_test.sh
tests_fuzz_deepspeed_SOURCES = tests/fuzz/fuzz_deepspeed.c tests/fuzz/driver.c
tests_fuzz_deepspeed_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"deepspeed"'
EXTRA_DIST += tests/fuzz/corpus/deepspeed
tests_fuzz_gguf_SOURCES = tests/fuzz/fuzz_gguf.c tests/fuzz/driver.c
tests_fuzz_gguf_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"gguf"'
EXTRA_DIST += tests/fuzz/corpus/gguf
tests_fuzz_torch_SOURCES = tests/fuzz/fuzz_torch.c tests/fuzz/driver.c
tests_fuzz_torch_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"torch"'
EXTRA_DIST += tests/fixtures/make_deepspeed.py tests/fixtures/deepspeed
EXTRA_DIST += tests/fixtures/make_layers.py tests/fixtures/layers tests/fixtures/make_torch.py tests/fixtures/torch tests/fuzz/corpus/torch
tests_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c tests/fuzz/driver.c
tests_fuzz_safetensors_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"safetensors"'
EXTRA_DIST += tests/fixtures/make_formats.py tests/fixtures/check_formats.py tests/fixtures/formats \
	tests/fuzz/make_safetensors_corpus.py tests/fuzz/corpus/safetensors
