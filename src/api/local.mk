libcore_la_SOURCES += src/api/options.h src/api/options.c src/api/rows.h src/api/rows.c src/api/foreign.h \
	src/api/foreign.c src/api/nearest.c src/api/session.h src/api/session.c src/api/samples.c src/api/task.c \
	src/api/classes.c
program_tests += tests/api/rows_test
