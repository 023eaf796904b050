libcore_la_SOURCES += src/metrics/metrics.h src/metrics/words.h src/metrics/words.c \
	src/metrics/classes.c src/metrics/numbers.c src/metrics/stem.c src/metrics/rouge.c \
	src/metrics/bleu.c src/metrics/scoreboard.c
EXTRA_DIST += src/metrics/metrics.h

program_tests += tests/metrics/metrics_test

# For tests/compare/against_metrics.py, by hand.
check_PROGRAMS += tests/compare/score
EXTRA_DIST += tests/compare/against_metrics.py tests/fixtures/make_metrics.py \
	tests/fixtures/metrics.json
