libcore_la_SOURCES += src/text/text.h src/text/samples.h src/text/internal.h src/text/tokenizer_json.h \
	src/text/unicode.h src/text/normalize.h src/text/model.h src/text/tokenizer.h \
	src/text/buffer.c src/text/unicode.c src/text/normalize.c src/text/charsmap.c src/text/stage.c \
	src/text/trie.c src/text/unigram.c src/text/wordpiece.c src/text/model.c src/text/frame.c \
	src/text/normalizer_json.c src/text/pretokenizer_json.c src/text/decoder_json.c \
	src/text/frame_json.c src/text/sentencepiece.h src/text/sentencepiece_model.c src/text/sentencepiece_check.c \
	src/text/utf8.c src/text/vocab.c src/text/bpe.c src/text/pretokenize.c \
	src/text/unicode_newer.c src/text/added.c src/text/encode.c src/text/decode.c \
	src/text/tokenizer.c src/text/tokenizer_bytes.c src/text/tokenizer_json.c src/text/tokenizer_model.c \
	src/text/source.c src/text/input.h src/text/input.c src/text/documents.c \
	src/text/table.c src/text/token_cache.c src/text/token_cache.h src/text/token_cache_write.c src/text/token_cache_text.c \
	src/text/token_sums.c src/text/sample.c src/text/samples_store.h src/text/samples_cache.c \
	src/text/samples_pack.c src/text/samples_group.c src/text/samples_window.c src/text/samples.c src/text/dataset.c
libcore_la_SOURCES += src/text/chat.h src/text/chat_template.h src/text/chat_templates.c \
	src/text/chat_render.c src/text/chat_encode.c src/text/chat_folder.c src/text/chat_jinja.c src/text/format.h \
	src/text/format.c src/text/format_turns.c src/text/format_pairs.c src/text/format_gdgpt.c src/text/format_python.c
libcore_la_SOURCES += src/text/task.h src/text/task.c src/text/labels.c
INSTALLED_H += src/text/text.h
EXTRA_DIST += src/text/samples.h src/text/chat.h src/text/task.h
if HAVE_SENTENCEPIECE
libcore_la_SOURCES += src/text/sentencepiece.cc
endif

check_PROGRAMS += tests/text_test tests/text_files_test tests/dataset_test tests/fuzz_tokenizer
TESTS += tests/text_test tests/text_files_test tests/dataset_test tests/fuzz_tokenizer
tests_text_test_SOURCES = tests/text_test.c
tests_text_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_text_test_LDADD = $(TEST_LDADD)
tests_text_files_test_SOURCES = tests/text_files_test.c
tests_text_files_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_text_files_test_LDADD = $(TEST_LDADD)
tests_dataset_test_SOURCES = tests/dataset_test.c
tests_dataset_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_dataset_test_LDADD = $(TEST_LDADD)
tests_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c tests/fuzz/driver.c
tests_fuzz_tokenizer_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"tokenizer"'
tests_fuzz_tokenizer_LDADD = $(TEST_LDADD)
check_PROGRAMS += tests/sources_test
TESTS += tests/sources_test
tests_sources_test_SOURCES = tests/sources_test.c
tests_sources_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_sources_test_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fixtures/make_tokenizer.py tests/fixtures/tokenizer \
	tests/fuzz/corpus/tokenizer

check_PROGRAMS += tests/tokenizer_kinds_test
TESTS += tests/tokenizer_kinds_test
tests_tokenizer_kinds_test_SOURCES = tests/tokenizer_kinds_test.c
tests_tokenizer_kinds_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tokenizer_kinds_test_LDADD = $(TEST_LDADD)

# For tests/compare/against_tokenizers.py, by hand.
check_PROGRAMS += tests/compare/tokenize
tests_compare_tokenize_SOURCES = tests/compare/tokenize.c
tests_compare_tokenize_CPPFLAGS = $(TEST_CPPFLAGS)
tests_compare_tokenize_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/compare/against_tokenizers.py tests/fixtures/make_tokenizer_kinds.py \
	tests/fixtures/tokenizer_kinds

check_PROGRAMS += tests/fuzz_sentencepiece
TESTS += tests/fuzz_sentencepiece
tests_fuzz_sentencepiece_SOURCES = tests/fuzz/fuzz_sentencepiece.c tests/fuzz/driver.c
tests_fuzz_sentencepiece_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"sentencepiece"'
tests_fuzz_sentencepiece_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fuzz/corpus/sentencepiece

check_PROGRAMS += tests/samples_group_test
TESTS += tests/samples_group_test
tests_samples_group_test_SOURCES = tests/samples_group_test.c
tests_samples_group_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_samples_group_test_LDADD = $(TEST_LDADD)
check_PROGRAMS += tests/samples_test
TESTS += tests/samples_test
tests_samples_test_SOURCES = tests/samples_test.c
tests_samples_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_samples_test_LDADD = $(TEST_LDADD)

# For tests/compare/against_chat.py, by hand.
check_PROGRAMS += tests/compare/chat
tests_compare_chat_SOURCES = tests/compare/chat.c
tests_compare_chat_CPPFLAGS = $(TEST_CPPFLAGS)
tests_compare_chat_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/compare/against_chat.py tests/compare/against_gdgpt.py

check_PROGRAMS += tests/chat_test
TESTS += tests/chat_test
tests_chat_test_SOURCES = tests/chat_test.c
tests_chat_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_chat_test_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fixtures/make_chat.py tests/fixtures/chat.json

check_PROGRAMS += tests/task_test
TESTS += tests/task_test
tests_task_test_SOURCES = tests/task_test.c
tests_task_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_task_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/fuzz_format
TESTS += tests/fuzz_format
tests_fuzz_format_SOURCES = tests/fuzz/fuzz_format.c tests/fuzz/driver.c
tests_fuzz_format_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"format"'
tests_fuzz_format_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/fuzz/corpus/format
