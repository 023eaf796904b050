EXTRA_DIST += examples/quickstart.sh examples/gpt2-xl-low-memory.sh scripts/install-deps.sh scripts/build.sh
