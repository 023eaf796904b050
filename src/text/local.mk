libcore_la_SOURCES += src/text/text.h src/text/internal.h src/text/tokenizer_json.h \
	src/text/utf8.c src/text/vocab.c src/text/bpe.c src/text/pretokenize.c src/text/added.c \
	src/text/encode.c src/text/decode.c src/text/tokenizer.c src/text/tokenizer_json.c \
	src/text/documents.c src/text/token_cache.c src/text/dataset.c
INSTALLED_H += src/text/text.h
