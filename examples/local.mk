examplesdir = $(docdir)/examples
dist_examples_SCRIPTS = examples/gpt2-xl-low-memory.sh examples/large-model.sh
dist_examples_DATA = examples/adamw_step.c examples/copy_file.c
xlexampledir = $(examplesdir)/gpt2-xl-24gb
dist_xlexample_SCRIPTS = examples/gpt2-xl-24gb/run.sh
dist_xlexample_DATA = examples/gpt2-xl-24gb/xl.json examples/gpt2-xl-24gb/13b.json
EXTRA_DIST += examples/quickstart.sh scripts/install-deps.sh scripts/build.sh
