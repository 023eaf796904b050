#!/bin/sh
# Builds zinf in FOLDER from whatever state the checkout is in: installs what is missing, makes
# configure if need be, configures once, compiles. Further runs only compile what changed.
#
# usage: scripts/build.sh FOLDER [ARGUMENT-OF-CONFIGURE...]
#
#   ZINF_TARGET  what make is asked for (default: all)
set -eu

usage="usage: $0 FOLDER [ARGUMENT-OF-CONFIGURE...]"
case ${1-} in
-h | --help)
    echo "$usage"
    exit 0
    ;;
'' | -*)
    echo "$usage" >&2
    exit 2
    ;;
esac
source=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mkdir -p -- "$1"
build=$(CDPATH='' cd -- "$1" && pwd)
shift

case "$source$build" in
*[[:space:]]*)
    echo "build: autotools cannot build in a path with spaces: $source, $build" >&2
    echo "build: move the checkout, or link to it: ln -s '$source' /tmp/zinf" >&2
    exit 1
    ;;
esac

"$source/scripts/install-deps.sh"
if [ ! -x "$source/configure" ] ||
    [ -n "$(find "$source/configure.ac" -newer "$source/configure")" ]; then
    echo "build: autoreconf"
    (cd "$source" && autoreconf -fi >"$build/autoreconf.log" 2>&1) || {
        cat "$build/autoreconf.log" >&2
        exit 1
    }
fi
cd "$build"
if [ ! -f Makefile ] || [ ! -x config.status ]; then
    echo "build: configure $*"
    "$source/configure" -q "$@"
fi
target=${ZINF_TARGET:-all}
echo "build: make -j$(nproc) $target in $build; a minute or two the first time, more with nvcc"
make -s -j"$(nproc)" "$target" >make.log 2>&1 || {
    tail -n 40 make.log >&2
    echo "build: make failed; all of it is in $build/make.log" >&2
    exit 1
}
