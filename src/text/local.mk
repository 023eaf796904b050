libcore_la_SOURCES += src/text/text.h src/text/samples/samples.h src/text/internal.h src/text/tokenizer/tokenizer_json.h \
	src/text/tokenizer/unicode.h src/text/tokenizer/normalize.h src/text/tokenizer/model.h src/text/tokenizer/tokenizer.h \
	src/text/tokenizer/buffer.c src/text/tokenizer/unicode.c src/text/tokenizer/normalize.c src/text/tokenizer/charsmap.c src/text/tokenizer/stage.c \
	src/text/tokenizer/trie.c src/text/tokenizer/unigram.c src/text/tokenizer/wordpiece.c src/text/tokenizer/model.c src/text/tokenizer/frame.c \
	src/text/tokenizer/normalizer_json.c src/text/tokenizer/pretokenizer_json.c src/text/tokenizer/decoder_json.c \
	src/text/tokenizer/frame_json.c src/text/tokenizer/sentencepiece.h src/text/tokenizer/sentencepiece_model.c src/text/tokenizer/sentencepiece_check.c \
	src/text/tokenizer/utf8.c src/text/tokenizer/vocab.c src/text/tokenizer/bpe.c src/text/tokenizer/pretokenize.c \
	src/text/tokenizer/unicode_newer.c src/text/tokenizer/added.c src/text/tokenizer/encode.c src/text/tokenizer/decode.c \
	src/text/tokenizer/tokenizer.c src/text/tokenizer/tokenizer_bytes.c src/text/tokenizer/tokenizer_json.c src/text/tokenizer/tokenizer_model.c \
	src/text/source.c src/text/lines.h src/text/lines.c src/text/samples/input.h src/text/samples/input.c src/text/samples/documents.c \
	src/text/samples/table.c src/text/samples/token_cache.c src/text/samples/token_cache.h src/text/samples/token_cache_write.c src/text/samples/token_cache_text.c \
	src/text/samples/token_sums.c src/text/samples/sample.c src/text/samples/samples_store.h src/text/samples/samples_cache.c \
	src/text/samples/samples_pack.c src/text/samples/samples_read.c src/text/samples/samples_group.c src/text/samples/samples_window.c src/text/samples/masking.h src/text/samples/masking.c src/text/samples/samples.c src/text/samples/mixture.c src/text/samples/id_stream.h src/text/samples/id_stream.c src/text/samples/dataset.c src/text/samples/stream.c \
	src/text/samples/flow.h src/text/samples/flow_private.h src/text/samples/flow.c src/text/samples/flow_rows.c src/text/samples/flow_files.c src/text/samples/row_thread.c
libcore_la_SOURCES += src/text/chat/chat.h src/text/chat/chat_template.h src/text/chat/chat_templates.c \
	src/text/chat/chat_render.c src/text/chat/chat_encode.c src/text/chat/chat_folder.c src/text/chat/chat_jinja.c src/text/samples/format.h \
	src/text/samples/format.c src/text/samples/format_turns.c src/text/samples/format_pairs.c src/text/samples/format_gdgpt.c src/text/samples/format_ids.c src/text/samples/format_python.c
libcore_la_SOURCES += src/text/samples/task.h src/text/samples/task.c src/text/samples/labels.c \
	src/text/samples/choices.h src/text/samples/choices_row.h src/text/samples/choices_row.c src/text/samples/choices.c
EXTRA_DIST += src/text/samples/samples.h src/text/chat/chat.h src/text/samples/task.h
if HAVE_SENTENCEPIECE
libcore_la_SOURCES += src/text/tokenizer/sentencepiece.cc
endif

program_tests += tests/text/lines_test tests/text/text_test tests/text/text_files_test tests/text/dataset_test \
	tests/fuzz_tokenizer
tests_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c tests/fuzz/driver.c
tests_fuzz_tokenizer_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"tokenizer"'
program_tests += tests/text/sources_test
EXTRA_DIST += tests/fixtures/make_tokenizer.py tests/fixtures/tokenizer \
	tests/fuzz/corpus/tokenizer

program_tests += tests/text/tokenizer_kinds_test
script_tests += tests/text/bounded_test.sh

# For tests/compare/against_tokenizers.py, by hand.
check_PROGRAMS += tests/compare/tokenize
EXTRA_DIST += tests/compare/against_tokenizers.py tests/fixtures/make_tokenizer_kinds.py \
	tests/fixtures/tokenizer_kinds

program_tests += tests/fuzz_sentencepiece
tests_fuzz_sentencepiece_SOURCES = tests/fuzz/fuzz_sentencepiece.c tests/fuzz/driver.c
tests_fuzz_sentencepiece_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"sentencepiece"'
EXTRA_DIST += tests/fuzz/corpus/sentencepiece

program_tests += tests/text/flow_test tests/text/samples_group_test tests/text/samples_test tests/text/mixture_test

# For tests/compare/against_chat.py, by hand.
check_PROGRAMS += tests/compare/chat
EXTRA_DIST += tests/compare/against_chat.py tests/compare/against_gdgpt.py

program_tests += tests/text/chat_test tests/text/rows_test
EXTRA_DIST += tests/compare/against_llama_cpp.py tests/compare/against_trl.py tests/compare/against_lm_eval.py
EXTRA_DIST += tests/fixtures/make_chat.py tests/fixtures/chat.json \
	tests/fixtures/make_rows.py tests/fixtures/rows.json tests/fixtures/cuts.json

program_tests += tests/text/task_test tests/text/masking_test tests/text/choices_test

program_tests += tests/fuzz_format
tests_fuzz_format_SOURCES = tests/fuzz/fuzz_format.c tests/fuzz/driver.c
tests_fuzz_format_CPPFLAGS = $(TEST_CPPFLAGS) -DFUZZ_TARGET='"format"'
EXTRA_DIST += tests/fuzz/corpus/format
