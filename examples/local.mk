EXTRA_DIST += examples/gpt2-xl-24gb/xl.json examples/gpt2-xl-24gb/13b.json \
	examples/gpt2-xl-24gb/run.sh
EXTRA_DIST += examples/quickstart.sh examples/gpt2-xl-low-memory.sh scripts/install-deps.sh scripts/build.sh
