libcore_la_SOURCES += src/train/train.h src/train/trainer.h src/train/emit.h src/train/lr.c \
	src/train/loss_scale.c src/train/sample.c src/train/plan.c src/train/emitter.c \
	src/train/emit.c src/train/emit_update.c src/train/ops.c src/train/trainer.c \
	src/train/transfer.c src/train/run.c src/train/run_log.c src/train/run_log.h
