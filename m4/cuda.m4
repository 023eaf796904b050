# ZINF_CUDA: --with-cuda[=DIR] (default: use it where nvcc is found). Sets NVCC and conditional HAVE_CUDA.
AC_DEFUN([ZINF_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [CUDA toolkit for the CUDA device module @<:@check@:>@])],
  [], [with_cuda=check])
AC_ARG_VAR([NVCC], [CUDA compiler])
zinf_cuda_summary="not used"
zinf_have_cuda=no
AS_IF([test "x$with_cuda" != xno], [
  AS_CASE([$with_cuda], [yes|check], [zinf_cuda_path="$PATH:/usr/local/cuda/bin"],
    [zinf_cuda_path="$with_cuda/bin"])
  AC_PATH_PROG([NVCC], [nvcc], [], [$zinf_cuda_path])
  AS_IF([test -n "$NVCC"], [zinf_have_cuda=yes; zinf_cuda_summary="toolkit at $NVCC"],
    [test "x$with_cuda" != xcheck],
    [AC_MSG_ERROR([--with-cuda was given but nvcc was not found in $zinf_cuda_path])])])
AM_CONDITIONAL([HAVE_CUDA], [test $zinf_have_cuda = yes])
AS_IF([test $zinf_have_cuda = yes],
  [AC_DEFINE([ZINF_HAVE_CUDA_TOOLKIT], [1], [the build found a CUDA toolkit])])
])
