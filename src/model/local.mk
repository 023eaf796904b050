libcore_la_SOURCES += src/model/model.h src/model/graph.h src/model/frame.h src/model/compute.h src/model/model.c src/model/family.c \
	src/model/family_gpt2.c src/model/block.c src/model/compute.c src/model/embed.c \
	src/model/head.c
INSTALLED_H += src/model/model.h src/model/graph.h
