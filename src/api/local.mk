libcore_la_SOURCES += src/api/session.h src/api/session.c src/api/samples.c src/api/task.c src/api/classes.c
