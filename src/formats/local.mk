libcore_la_SOURCES += src/formats/formats.h src/formats/safetensors.h \
	src/formats/tensors_index.h src/formats/file_span.h src/formats/file_dtype.c \
	src/formats/file_span.c src/formats/safetensors_header.c src/formats/tensors_index.c \
	src/formats/tensors_reader.c
INSTALLED_H += src/formats/formats.h

check_PROGRAMS += tests/fuzz_safetensors
TESTS += tests/fuzz_safetensors
tests_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c tests/fuzz/driver.c
tests_fuzz_safetensors_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"safetensors"'
tests_fuzz_safetensors_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fuzz/corpus/safetensors
EXTRA_DIST += tests/fuzz/make_safetensors_corpus.py
