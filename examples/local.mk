EXTRA_DIST += examples/quickstart.sh scripts/install-deps.sh scripts/build.sh
