cli_parts = src/cli/cli.h src/cli/command.c src/cli/options.c src/cli/help.c src/cli/progress.c src/cli/plot/chart.c src/cli/words.c \
	src/cli/report.h src/cli/report_redact.c
# libcli holds all but main, so that a test can be the command.
bin_PROGRAMS += zinf
noinst_LTLIBRARIES += libcli.la
zinf_SOURCES = src/cli/main.c
libcli_la_SOURCES = $(cli_parts) src/cli/data_show.h src/cli/data_show.c src/cli/cmd_data.c \
	src/cli/cmd_init.c src/cli/folder.h src/cli/folder.c src/cli/adapters.h src/cli/adapters.c src/cli/signals.h src/cli/signals.c src/cli/cmd_train.c src/cli/train_place.h src/cli/train_place.c src/cli/train_show.h src/cli/train_show.c \
	src/cli/train_summary.c src/cli/plot/plot.h src/cli/plot/plot_read.c src/cli/plot/plot_svg.c \
	src/cli/plot/plot_page.c src/cli/plot/plot_export.c src/cli/plot/cmd_plot.c src/cli/tb_events.h src/cli/tb_events.c \
	src/cli/cmd_embed.c src/cli/cmd_eval.c src/cli/cmd_generate.c \
	src/cli/cmd_gradients.c src/cli/cmd_export.c src/cli/cmd_resume_info.c src/cli/cmd_verify.c \
	src/cli/estimate/cmd_estimate.c src/cli/estimate/estimate.c src/cli/estimate/estimate.h \
	src/cli/estimate/estimate_compare.c src/cli/estimate/estimate_place.c src/cli/estimate/estimate_longest.c src/cli/estimate/machine.h src/cli/estimate/machine.c src/cli/estimate/machine_cards.c \
	src/cli/estimate/machine_file.c src/cli/inspect.h src/cli/inspect.c src/cli/cmd_inspect.c \
	src/cli/cmd_config.c src/cli/report_machine.c src/cli/report_limits.c src/cli/cmd_report.c \
	src/cli/doctor/doctor.h src/cli/doctor/doctor.c src/cli/doctor/cmd_doctor.c \
	src/cli/doctor/doctor_device.c src/cli/doctor/doctor_kernels.c src/cli/doctor/doctor_step.c \
	src/cli/bench/bench.h src/cli/bench/bench_cache.c src/cli/bench/cmd_bench.c src/cli/bench/bench_nvme.h \
	src/cli/bench/bench_nvme.c src/cli/bench/bench_nvme_measure.c src/cli/bench/bench_nvme_text.c \
 src/cli/bench/bench_optim.c \
	src/cli/bench/bench_device.h src/cli/bench/bench_device.c src/cli/bench/bench_gemm.c src/cli/bench/bench_attention.c \
	src/cli/bench/bench_pcie.c src/cli/bench/bench_memory.c src/cli/bench/bench_waking.c src/cli/bench/bench_busy.c \
	src/cli/bench/bench_schedule.c src/cli/bench/bench_all.c src/cli/estimate/estimate_sources.c
zinf_LDADD = libcli.la libcases.la libcore.la $(EXTERNAL_LIBS)

# Cases of kernels, for the doctor and for the tests of the CUDA device.
noinst_LTLIBRARIES += libcases.la
libcases_la_SOURCES = src/cli/doctor/tensor.h src/cli/doctor/twin.h src/cli/doctor/twin.c \
	src/cli/doctor/cases.h src/cli/doctor/cases_numbers.c src/cli/doctor/cases_rows.c \
	src/cli/doctor/cases_loss.c src/cli/doctor/cases_attention.c \
	src/cli/doctor/cases_recurrent.c src/cli/doctor/cases_experts.c \
	src/cli/doctor/cases_weights.c src/cli/doctor/cases_update.c

libcli_la_SOURCES += src/cli/serve/serve.h src/cli/serve/cmd_serve.c
if HAVE_MICROHTTPD
libcli_la_SOURCES += src/cli/serve/serve_answer.c src/cli/serve/serve_ask.c src/cli/serve/serve_clock.c \
	src/cli/serve/serve_desk.c src/cli/serve/serve_line.c src/cli/serve/serve_maker.c src/cli/serve/serve_page.c src/cli/serve/serve_run.c
libcli_la_LIBADD = $(MICROHTTPD_LIBS)
else
libcli_la_SOURCES += src/cli/serve/serve_without.c
endif
EXTRA_DIST += src/cli/serve/serve_without.c
script_tests += tests/cli/serve_test.sh

bashcompletiondir = $(datarootdir)/bash-completion/completions
dist_bashcompletion_DATA = src/cli/completions/zinf
zshcompletiondir = $(datarootdir)/zsh/site-functions
dist_zshcompletion_DATA = src/cli/completions/_zinf
fishcompletiondir = $(datarootdir)/fish/vendor_completions.d
dist_fishcompletion_DATA = src/cli/completions/zinf.fish

program_tests += tests/cli/cli_options_test
tests_cli_cli_options_test_LDADD = libcli.la $(LDADD)

program_tests += tests/cli/tb_events_test
script_tests += tests/cli/plot_test.sh
tests_cli_tb_events_test_LDADD = libcli.la $(LDADD)
script_tests += tests/cli/completion_test.sh

script_tests += tests/cli/bench_nvme_test.sh tests/cli/estimate_test.sh \
	tests/cli/estimate_machine_test.sh tests/cli/estimate_first_test.sh tests/cli/examples_test.sh tests/cli/estimate_more_test.sh tests/ranks/width_test.sh \
	tests/cli/bench_device_test.sh tests/cli/bench_schedule_test.sh

script_tests += tests/cli/generate_cli_test.sh

script_tests += tests/cli/sample_prompts_test.sh tests/cli/chunks_test.sh tests/cli/sets_test.sh tests/cli/streaming_test.sh tests/cli/micro_test.sh tests/cli/lengths_test.sh tests/cli/chat_cli_test.sh

script_tests += tests/cli/scores_test.sh tests/cli/choices_test.sh tests/cli/manual_test.sh

script_tests += tests/cli/seq2seq_test.sh tests/cli/classify_test.sh tests/cli/masked_test.sh tests/cli/embed_test.sh tests/cli/guides_test.sh

libcli_la_SOURCES += src/cli/launch.h src/cli/launch_hosts.c src/cli/launch_variables.c src/cli/cmd_launch.c
script_tests += tests/ranks/launch_test.sh tests/cli/estimate_ranks_test.sh
EXTRA_DIST += tests/bench/estimate_ranks.sh tests/bench/seats_overhead.sh tests/bench/parallel_torch.py
EXTRA_DIST += tests/bench/pipeline.sh

EXTRA_DIST += tests/bench/schedules.sh tests/bench/long_sequences.sh tests/bench/long_plans.sh tests/bench/capped.sh tests/bench/experts.sh
