#!/bin/sh
# The CUDA module's own libraries: one that is not where the linker looks is found in the folder that
# ZINF_CUDA_LIBRARIES names, and else named in the message with the remedy.
. "$SRCDIR/tests/support/command.sh"
cc=${CC:-cc}

# A module that needs a library of a folder that is no linker's.
make_module() {
    mkdir -p "$work/elsewhere"
    echo 'int needed(void); int needed(void) { return 0; }' >"$work/needed.c"
    echo 'int needed(void); int other(void); int other(void) { return needed(); }' >"$work/module.c"
    $cc -shared -fPIC -Wl,-soname,libzinfneeded.so.1 -o "$work/elsewhere/libzinfneeded.so.1" \
        "$work/needed.c" &&
        $cc -shared -fPIC -o "$work/module.so" "$work/module.c" "$work/elsewhere/libzinfneeded.so.1"
}

report() { # variables...
    run 0 env ZINF_CUDA_MODULE="$work/module.so" "$@" "$zinf" report
}

named_with_remedy() {
    report && says "the CUDA module needs libzinfneeded.so.1" "ZINF_CUDA_LIBRARIES"
}

# It then loads, and is refused for what it lacks: the folder of a pattern counts too.
found_elsewhere() {
    report ZINF_CUDA_LIBRARIES="$work/elsewhere" && says "is no CUDA module of this version" &&
        report ZINF_CUDA_LIBRARIES="$work/else*" && says "is no CUDA module of this version"
}

found_in_a_toolkit() {
    mkdir -p "$work/toolkit" && cp -R "$work/elsewhere" "$work/toolkit/lib64" &&
        report CUDA_HOME="$work/toolkit" && says "is no CUDA module of this version"
}

found_in_python_packages() {
    packages=$work/venv/lib/python3.12/site-packages/nvidia/cublas
    mkdir -p "$packages" && cp -R "$work/elsewhere" "$packages/lib" &&
        report VIRTUAL_ENV="$work/venv" && says "is no CUDA module of this version"
}

# Containers have their Python in a virtual environment below /opt: here in a name space where the
# folder below is /opt.
found_below_opt() { # folder of Python
    rm -rf "$work/opt"
    packages=$work/opt/$1/lib/python3.12/site-packages/nvidia/cu13
    mkdir -p "$packages" && cp -R "$work/elsewhere" "$packages/lib" &&
        run 0 env ZINF_CUDA_MODULE="$work/module.so" unshare -rm sh -c \
            "mount --bind '$work/opt' /opt && exec '$zinf' report" &&
        says "is no CUDA module of this version"
}

module_missing() {
    run 0 env ZINF_CUDA_MODULE="$work/none.so" "$zinf" report && says "no CUDA module" "none.so"
}

if make_module >"$work/cc.txt" 2>&1; then
    check "a missing library is named with the remedy" named_with_remedy
    check "a library is found where a variable says" found_elsewhere
    check "a library is found in a toolkit" found_in_a_toolkit
    check "a library is found among Python's packages" found_in_python_packages
    if [ -d /opt ] && unshare -rm mount --bind "$work" /opt 2>/dev/null; then
        check "a library is found in an environment below /opt" found_below_opt torch/.venv
        check "a library is found in a folder of environments" found_below_opt envs/torch
    else
        skip "a library is found in an environment below /opt" "no name spaces here"
    fi
else
    skip "libraries of the CUDA module" "no compiler for a module"
fi
check "a missing module is named" module_missing
finish
