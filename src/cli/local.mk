cli_parts = src/cli/cli.h src/cli/options.c src/cli/progress.c src/cli/chart.c src/cli/nearest.c src/cli/words.c \
	src/cli/report.h src/cli/report_redact.c
# libcli holds all but main, so that a test can be the command.
bin_PROGRAMS += zinf
noinst_LTLIBRARIES += libcli.la
zinf_SOURCES = src/cli/main.c
libcli_la_SOURCES = $(cli_parts) src/cli/usage.h src/cli/data.h src/cli/data.c src/cli/samples.c src/cli/data_show.h src/cli/data_show.c src/cli/cmd_data.c \
	src/cli/cmd_init.c src/cli/folder.h src/cli/folder.c src/cli/adapters.h src/cli/adapters.c src/cli/seats.h src/cli/seats.c src/cli/cmd_train.c src/cli/train_show.h src/cli/train_show.c \
	src/cli/train_summary.c src/cli/plot.h src/cli/plot_read.c src/cli/plot_svg.c \
	src/cli/plot_page.c src/cli/plot_export.c src/cli/cmd_plot.c src/cli/tb_events.h src/cli/tb_events.c \
	src/cli/scores.h src/cli/scores.c src/cli/cmd_eval.c src/cli/cmd_generate.c src/cli/generate.h \
	src/cli/generate_config.c src/cli/generate_text.c src/cli/generate_chat.c src/cli/generate_source.c src/cli/task.c src/cli/classes.c \
	src/cli/cmd_gradients.c src/cli/cmd_export.c src/cli/cmd_resume_info.c src/cli/cmd_verify.c \
	src/cli/cmd_estimate.c src/cli/estimate.c src/cli/estimate.h src/cli/estimate_speeds.c \
	src/cli/estimate_compare.c src/cli/machine.h src/cli/machine.c src/cli/machine_cards.c \
	src/cli/machine_file.c src/cli/inspect.h src/cli/inspect.c src/cli/cmd_inspect.c \
	src/cli/cmd_config.c src/cli/report_machine.c src/cli/report_limits.c src/cli/cmd_report.c \
	src/cli/doctor.h src/cli/cmd_doctor.c \
	src/cli/doctor_device.c src/cli/doctor_kernels.c src/cli/doctor_operations.h \
	src/cli/doctor_operations.c src/cli/doctor_step.c \
	src/cli/bench.h src/cli/bench_cache.c src/cli/cmd_bench.c src/cli/bench_nvme.h \
	src/cli/bench_nvme.c src/cli/bench_nvme_measure.c src/cli/bench_nvme_text.c \
	src/cli/bench_nvme_json.c src/cli/bench_optim.c \
	src/cli/bench_device.h src/cli/bench_device.c src/cli/bench_gemm.c src/cli/bench_attention.c \
	src/cli/bench_pcie.c src/cli/bench_pcie_gpus.c src/cli/bench_memory.c \
	src/cli/bench_schedule.c src/cli/bench_all.c src/cli/estimate_sources.c
zinf_LDADD = libcli.la libcore.la $(EXTERNAL_LIBS)

bashcompletiondir = $(datarootdir)/bash-completion/completions
dist_bashcompletion_DATA = src/cli/completions/zinf
zshcompletiondir = $(datarootdir)/zsh/site-functions
dist_zshcompletion_DATA = src/cli/completions/_zinf
fishcompletiondir = $(datarootdir)/fish/vendor_completions.d
dist_fishcompletion_DATA = src/cli/completions/zinf.fish

check_PROGRAMS += tests/cli_options_test
TESTS += tests/cli_options_test
tests_cli_options_test_SOURCES = tests/cli_options_test.c $(cli_parts)
tests_cli_options_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_cli_options_test_LDADD = $(TEST_LDADD)

check_PROGRAMS += tests/tb_events_test
TESTS += tests/tb_events_test tests/plot_test.sh
tests_tb_events_test_SOURCES = tests/tb_events_test.c src/cli/tb_events.h src/cli/tb_events.c
tests_tb_events_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tb_events_test_LDADD = $(TEST_LDADD)
TESTS += tests/completion_test.sh
EXTRA_DIST += tests/plot_test.sh tests/completion_test.sh

TESTS += tests/bench_nvme_test.sh tests/estimate_test.sh tests/estimate_machine_test.sh tests/estimate_more_test.sh tests/width_test.sh tests/bench_device_test.sh tests/bench_schedule_test.sh
EXTRA_DIST += tests/bench_nvme_test.sh tests/estimate_test.sh tests/estimate_machine_test.sh tests/estimate_more_test.sh tests/width_test.sh tests/bench_device_test.sh tests/bench_schedule_test.sh

TESTS += tests/generate_cli_test.sh
EXTRA_DIST += tests/generate_cli_test.sh

TESTS += tests/lengths_test.sh
EXTRA_DIST += tests/lengths_test.sh
TESTS += tests/chat_cli_test.sh
EXTRA_DIST += tests/chat_cli_test.sh

TESTS += tests/scores_test.sh
EXTRA_DIST += tests/scores_test.sh

TESTS += tests/seq2seq_test.sh
TESTS += tests/classify_test.sh tests/guides_test.sh
EXTRA_DIST += tests/classify_test.sh tests/guides_test.sh
EXTRA_DIST += tests/seq2seq_test.sh

libcli_la_SOURCES += src/cli/launch.h src/cli/launch_hosts.c src/cli/cmd_launch.c
TESTS += tests/launch_test.sh tests/estimate_ranks_test.sh
EXTRA_DIST += tests/launch_test.sh tests/estimate_ranks_test.sh tests/bench/estimate_ranks.sh tests/bench/seats_overhead.sh

EXTRA_DIST += tests/bench/schedules.sh tests/bench/capped.sh
