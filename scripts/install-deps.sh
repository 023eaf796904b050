#!/bin/sh
# Installs what is needed to build zinf and is not there yet. Looks first with the compiler and
# pkg-config, so that a prepared machine is left alone. Only apt-get is ever run, and only as root
# or with a sudo that asks for no password; for other package managers the line to type is printed.
#
# usage: scripts/install-deps.sh [--check] [--tests]
#
#   --check  only look; status 1 if something is missing
#   --tests  also what tests use and would else skip for: mandoc, other shells, ...
set -eu

check_only=no
tests=no
for word; do
    case $word in
    --check) check_only=yes ;;
    --tests) tests=yes ;;
    *)
        echo "usage: $0 [--check] [--tests]" >&2
        exit 2
        ;;
    esac
done

missing=
need() { missing="$missing $1"; }

compiler=
for candidate in "${CC-}" cc gcc clang; do # CC may be two words, as in CC='ccache gcc'
    if command -v "${candidate%% *}" >/dev/null 2>&1; then
        compiler=$candidate
        break
    fi
done
# A header counts only if the C library's are there too.
# shellcheck disable=SC2086 # words of $compiler
has_header() {
    [ -n "$compiler" ] && printf '#include <stdio.h>\n#include <%s>\n' "$1" |
        $compiler -E -o /dev/null -xc - >/dev/null 2>&1
}
has_tool() { command -v "$1" >/dev/null 2>&1; }
has_module() { has_tool pkg-config && pkg-config --exists "$1" 2>/dev/null; }

has_tool autoreconf || need autoconf
has_tool automake || need automake
has_tool libtoolize || need libtool
has_tool pkg-config || need pkg-config
has_tool make || need make
has_header stdio.h || need gcc
# SentencePiece is C++; Debian's gcc comes without.
has_tool c++ || has_tool g++ || need g++
has_module 'liburing >= 2.3' || need liburing-dev
has_header numa.h || need libnuma-dev
has_module openblas || need libopenblas-openmp-dev
has_module libcjson || need libcjson-dev
has_module yaml-0.1 || need libyaml-dev
has_module libpcre2-8 || need libpcre2-dev
has_module icu-uc || need libicu-dev
has_module libxxhash || need libxxhash-dev
has_module zlib || need zlib1g-dev
has_module libzstd || need libzstd-dev
has_module libcrypto || need libssl-dev
has_module sentencepiece || need libsentencepiece-dev
has_module libmicrohttpd || need libmicrohttpd-dev
has_tool mpicc || need libopenmpi-dev
has_tool mpirun || need openmpi-bin
if [ "$tests" = yes ]; then
    has_tool mandoc || need mandoc
    has_tool bash || need bash
    has_tool zsh || need zsh
    has_tool fish || need fish
    has_tool script || need bsdutils
    has_tool ip || need iproute2
    has_tool curl || need curl
    [ -f /usr/share/i18n/locales/de_DE ] || need locales
fi

if [ -z "$missing" ]; then
    echo "install-deps: nothing is missing"
    exit 0
fi
if [ "$check_only" = yes ]; then
    echo "install-deps: missing:$missing"
    exit 1
fi

# Debian's name of a package as the package manager $1 knows it.
translate() {
    case "$1:$2" in
    dnf:g++ | zypper:g++) echo gcc-c++ ;;
    pacman:g++) echo gcc ;;
    dnf:pkg-config | zypper:pkg-config) echo pkgconf-pkg-config ;;
    pacman:pkg-config) echo pkgconf ;;
    dnf:liburing-dev | zypper:liburing-dev) echo liburing-devel ;;
    dnf:libnuma-dev) echo numactl-devel ;;
    zypper:libnuma-dev) echo libnuma-devel ;;
    dnf:libopenblas-openmp-dev) echo openblas-devel ;;
    zypper:libopenblas-openmp-dev) echo openblas_openmp-devel ;;
    dnf:libcjson-dev | zypper:libcjson-dev) echo cjson-devel ;;
    dnf:libyaml-dev | zypper:libyaml-dev) echo libyaml-devel ;;
    pacman:libyaml-dev) echo libyaml ;;
    dnf:libpcre2-dev | zypper:libpcre2-dev) echo pcre2-devel ;;
    dnf:libicu-dev | zypper:libicu-dev) echo libicu-devel ;;
    pacman:libicu-dev) echo icu ;;
    dnf:libsentencepiece-dev | zypper:libsentencepiece-dev) echo sentencepiece-devel ;;
    pacman:libsentencepiece-dev) echo sentencepiece ;;
    dnf:libmicrohttpd-dev | zypper:libmicrohttpd-dev) echo libmicrohttpd-devel ;;
    pacman:libmicrohttpd-dev) echo libmicrohttpd ;;
    dnf:libopenmpi-dev) echo openmpi-devel ;;
    zypper:libopenmpi-dev) echo openmpi4-devel ;;
    dnf:openmpi-bin | pacman:openmpi-bin | pacman:libopenmpi-dev) echo openmpi ;;
    zypper:openmpi-bin) echo openmpi4 ;;
    dnf:zlib1g-dev | zypper:zlib1g-dev) echo zlib-devel ;;
    dnf:libzstd-dev | zypper:libzstd-dev) echo libzstd-devel ;;
    dnf:libssl-dev) echo openssl-devel ;;
    zypper:libssl-dev) echo libopenssl-devel ;;
    pacman:libssl-dev) echo openssl ;;
    pacman:zlib1g-dev) echo zlib ;;
    pacman:libzstd-dev) echo zstd ;;
    dnf:libxxhash-dev | zypper:libxxhash-dev) echo xxhash-devel ;;
    pacman:liburing-dev) echo liburing ;;
    pacman:libnuma-dev) echo numactl ;;
    pacman:libopenblas-openmp-dev) echo openblas ;;
    pacman:libcjson-dev) echo cjson ;;
    pacman:libpcre2-dev) echo pcre2 ;;
    pacman:libxxhash-dev) echo xxhash ;;
    dnf:bsdutils | zypper:bsdutils | pacman:bsdutils) echo util-linux ;;
    dnf:iproute2) echo iproute ;;
    dnf:locales) echo glibc-locale-source ;;
    zypper:locales) echo glibc-i18ndata ;;
    pacman:locales) echo glibc ;;
    *) echo "$2" ;;
    esac
}
print_line() { # manager, its install command
    names=
    for package in $missing; do
        names="$names $(translate "$1" "$package")"
    done
    echo "install-deps: run this, then start again:" >&2
    echo "  $2$names" >&2
    exit 1
}

if has_tool apt-get; then
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif has_tool sudo && sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        print_line apt 'sudo apt-get install -y'
    fi
    echo "install-deps: apt-get installs$missing"
    # Lists may be old or absent on a fresh machine; a failing mirror of another source is no reason
    # to stop before the install has been tried.
    $as_root apt-get update -qq </dev/null || echo "install-deps: apt-get update failed" >&2
    # shellcheck disable=SC2086  # a list of words, none with spaces
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $missing libc6-dev </dev/null >/dev/null || print_line apt 'sudo apt-get install -y'
elif has_tool dnf; then
    print_line dnf 'sudo dnf install -y'
elif has_tool zypper; then
    print_line zypper 'sudo zypper install -y'
elif has_tool pacman; then
    print_line pacman 'sudo pacman -S --needed'
else
    echo "install-deps: missing (Debian's names):$missing; install them by hand" >&2
    exit 1
fi
