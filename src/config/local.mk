libcore_la_SOURCES += src/config/config.h src/config/config_private.h \
	src/config/config_table.c src/config/config_names.c src/config/config_value.c \
	src/config/config_load.c src/config/config_context.c src/config/config_auto.c \
	src/config/config_batch.c src/config/config_check.c src/config/config_print.c
INSTALLED_H += src/config/config.h

