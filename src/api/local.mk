libcore_la_SOURCES += src/api/api.h src/api/api.c src/api/options.h src/api/options.c src/api/option_facts.c src/api/rows.h src/api/rows.c src/api/foreign.h \
	src/api/foreign.c src/api/nearest.c src/api/spelling.c src/api/session.h src/api/session.c src/api/hub.c src/api/speeds.h src/api/speeds.c src/api/data.c src/api/flow.c src/api/samples.c src/api/sets.c src/api/micro.c src/api/idle.c src/api/task.c \
	src/api/fit.c src/api/classes.c src/api/masked.c src/api/embedding.h src/api/embedding.c src/api/embedding_rows.c src/api/embed.c src/api/seats.c src/api/training.c src/api/evaluation.c src/api/prompts.c src/api/scores.c src/api/choices.h src/api/choices.c \
	src/api/generate.h src/api/generate_config.c src/api/texts.h src/api/text.c src/api/texts.c
INSTALLED_H += src/api/api.h
program_tests += tests/api/rows_test tests/api/door_test
script_tests += tests/api/installed_test.sh
