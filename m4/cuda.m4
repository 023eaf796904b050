# ZINF_CUDA: --with-cuda[=DIR] (default: use it where nvcc is found) and --with-cuda-arch=LIST.
# Sets NVCC, CUDA_GENCODE, CUDA_CPPFLAGS, CUDA_LIBS and the conditional HAVE_CUDA.
AC_DEFUN([ZINF_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [CUDA toolkit for the CUDA device module @<:@check@:>@])],
  [], [with_cuda=check])
AC_ARG_WITH([cuda-arch],
  [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities to compile for @<:@those of "75 80 86 89 90 100 120" that nvcc knows@:>@])],
  [], [with_cuda_arch=default])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
zinf_cuda_summary="not used"
zinf_have_cuda=no
AS_IF([test "x$with_cuda" != xno], [
  AS_CASE([$with_cuda], [yes|check], [zinf_cuda_path="$PATH:/usr/local/cuda/bin"],
    [zinf_cuda_path="$with_cuda/bin"])
  AC_PATH_PROG([NVCC], [nvcc], [], [$zinf_cuda_path])
  AS_IF([test -n "$NVCC"], [zinf_have_cuda=yes],
    [test "x$with_cuda" != xcheck],
    [AC_MSG_ERROR([--with-cuda was given but nvcc was not found in $zinf_cuda_path])])])
AS_IF([test $zinf_have_cuda = yes], [
  zinf_cuda_dir=`AS_DIRNAME(["$NVCC"])`
  zinf_cuda_dir=`AS_DIRNAME(["$zinf_cuda_dir"])`
  CUDA_CPPFLAGS="-isystem $zinf_cuda_dir/include"
  CUDA_LIBS="-L$zinf_cuda_dir/lib64 -Wl,-rpath,$zinf_cuda_dir/lib64 -lcublasLt -lcudart -lstdc++"
  CUDA_MAJOR=`"$NVCC" --version | sed -n 's/.*release \([[0-9]]*\)\..*/\1/p'`
  AS_IF([test "x$with_cuda_arch" = xdefault], [
    zinf_known_arch=`"$NVCC" --list-gpu-arch`
    with_cuda_arch=
    for arch in 75 80 86 89 90 100 120; do
      AS_CASE([" "$zinf_known_arch" "], [*compute_$arch*],
        [with_cuda_arch="$with_cuda_arch${with_cuda_arch:+ }$arch"])
    done])
  CUDA_GENCODE=
  # Machine code for each, and PTX: of the last for GPUs to come, of the others for those between,
  # and for the tests that interpret it. Compressed it is a tenth of the machine code. Kernels know
  # sm_75 from all later ones, so that one PTX will do for several: compiling to it takes two thirds
  # of the time. The compiler itself has more for sm_100 and later ones.
  for arch in `echo "$with_cuda_arch" | tr ',;' '  '`; do
    AS_CASE([$arch], [[[0-9][0-9]|[0-9][0-9][0-9]|[0-9][0-9]a|[0-9][0-9][0-9]a]], [],
      [AC_MSG_ERROR([--with-cuda-arch: '$arch' is no compute capability such as 80 or 90])])
    zinf_ptx_arch=$arch
    AS_CASE([$arch], [[8[0-9]|9[0-9]]], [zinf_ptx_arch=80], [[1[0-9][0-9]]], [zinf_ptx_arch=100])
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$zinf_ptx_arch,code=sm_$arch"
    AS_CASE(["$CUDA_GENCODE "], [*"code=compute_$zinf_ptx_arch "*], [],
      [CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$zinf_ptx_arch,code=compute_$zinf_ptx_arch"])
  done
  zinf_cuda_summary="toolkit at $NVCC for $with_cuda_arch"
  AC_DEFINE([ZINF_HAVE_CUDA_TOOLKIT], [1], [the build found a CUDA toolkit])])
AC_SUBST([CUDA_MAJOR])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
AC_SUBST([CUDA_GENCODE])
AM_CONDITIONAL([HAVE_CUDA], [test $zinf_have_cuda = yes])
])

# ZINF_CUDA_STANDIN: whether the CUDA device can be tested without CUDA: kernels are compiled as
# C++, and their threads switch stacks by x86-64 assembly. Sets the conditional CUDA_STANDIN.
AC_DEFUN([ZINF_CUDA_STANDIN], [
AC_CACHE_CHECK([whether the CUDA device can be tested without CUDA], [zinf_cv_cuda_standin], [
  AC_LANG_PUSH([C++])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#if !defined __x86_64__
#error "not x86-64"
#endif
template <class T> static T twice(T x) { return x + x; }]], [[return twice(0);]])],
    [zinf_cv_cuda_standin=yes], [zinf_cv_cuda_standin=no])
  AC_LANG_POP([C++])])
AM_CONDITIONAL([CUDA_STANDIN], [test $zinf_cv_cuda_standin = yes])
ZINF_TSAN
])

# ZINF_PTX_TESTS: whether the compiled module can be tested without a GPU, by interpreting its PTX:
# that takes the module and the stand-in. Not under a sanitizer: the interpreter would meet the
# program's runtime. Sets the conditional PTX_TESTS.
AC_DEFUN([ZINF_PTX_TESTS], [
zinf_ptx_tests=no
AS_IF([test $zinf_have_cuda:$zinf_cv_cuda_standin = yes:yes],
  [AS_CASE([$enable_sanitizer], [""|no], [zinf_ptx_tests=yes])])
AM_CONDITIONAL([PTX_TESTS], [test $zinf_ptx_tests = yes])
])

# ZINF_TSAN: TSAN_CFLAGS for a program of its own under the thread sanitizer, empty where that has
# no fibers, does not run, or another sanitizer is asked for; TSAN_NO_CALLS so that it does not
# follow calls, which code that changes stacks behind its back must not show it.
AC_DEFUN([ZINF_TSAN], [
zinf_saved_cflags=$CFLAGS
AC_CACHE_CHECK([whether the thread sanitizer runs and has fibers], [zinf_cv_tsan], [
  CFLAGS="$CFLAGS -fsanitize=thread"
  AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <sanitizer/tsan_interface.h>]],
      [[__tsan_destroy_fiber(__tsan_create_fiber(0));]])],
    [zinf_cv_tsan=yes], [zinf_cv_tsan=no], [zinf_cv_tsan=no])
  CFLAGS=$zinf_saved_cflags])
AC_CACHE_CHECK([how the thread sanitizer does not follow calls], [zinf_cv_tsan_no_calls], [
  zinf_cv_tsan_no_calls=
  for flag in "--param=tsan-instrument-func-entry-exit=0" \
      "-mllvm -tsan-instrument-func-entry-exit=0"; do
    CFLAGS="$CFLAGS -Werror $flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([])],
      [test -n "$zinf_cv_tsan_no_calls" || zinf_cv_tsan_no_calls=$flag])
    CFLAGS=$zinf_saved_cflags
  done])
AS_CASE([$zinf_cv_tsan:$enable_sanitizer], [yes:|yes:no|yes:thread], [TSAN_CFLAGS=-fsanitize=thread],
  [TSAN_CFLAGS=])
AC_SUBST([TSAN_CFLAGS])
AC_SUBST([TSAN_NO_CALLS], [$zinf_cv_tsan_no_calls])
])
