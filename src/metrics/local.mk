libcore_la_SOURCES += src/metrics/metrics.h src/metrics/words.h src/metrics/words.c \
	src/metrics/classes.c src/metrics/numbers.c src/metrics/stem.c src/metrics/rouge.c \
	src/metrics/bleu.c src/metrics/scoreboard.c
EXTRA_DIST += src/metrics/metrics.h

check_PROGRAMS += tests/metrics_test
TESTS += tests/metrics_test
tests_metrics_test_SOURCES = tests/metrics_test.c
tests_metrics_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_metrics_test_LDADD = $(TEST_LDADD)

# For tests/compare/against_metrics.py, by hand.
check_PROGRAMS += tests/compare/score
tests_compare_score_SOURCES = tests/compare/score.c
tests_compare_score_CPPFLAGS = $(TEST_CPPFLAGS)
tests_compare_score_LDADD = $(TEST_LDADD)
EXTRA_DIST += tests/compare/against_metrics.py tests/fixtures/make_metrics.py \
	tests/fixtures/metrics.json
