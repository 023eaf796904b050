# ZINF_MPI: --with-mpi[=MPICC] (default: use it where mpicc is found and works). Sets MPICC,
# MPI_CPPFLAGS, MPI_LIBS and the conditional HAVE_MPI. The flags are asked of the compiler's wrapper,
# so that the module is compiled as everything else is.
AC_DEFUN([ZINF_MPI], [
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi@<:@=MPICC@:>@], [MPI for several ranks, by its compiler mpicc @<:@check@:>@])],
  [], [with_mpi=check])
AC_ARG_VAR([MPICC], [compiler of an MPI])
zinf_mpi_summary="not used"
zinf_have_mpi=no
AS_IF([test "x$with_mpi" != xno], [
  AS_CASE([$with_mpi], [yes|check], [AC_PATH_PROG([MPICC], [mpicc])], [MPICC=$with_mpi])
  # Open MPI says its flags by --showme, MPICH by -compile_info and -link_info.
  AS_IF([test -n "$MPICC"], [
    MPI_CPPFLAGS=`"$MPICC" --showme:compile 2>/dev/null ||
      "$MPICC" -compile_info 2>/dev/null | tr ' ' '\n' | grep '^-[[ID]]' | tr '\n' ' '`
    MPI_LIBS=`"$MPICC" --showme:link 2>/dev/null ||
      "$MPICC" -link_info 2>/dev/null | tr ' ' '\n' | grep '^-\([[Ll]]\|Wl,\)' | tr '\n' ' '`
    zinf_saved_cppflags=$CPPFLAGS
    zinf_saved_libs=$LIBS
    CPPFLAGS="$CPPFLAGS $MPI_CPPFLAGS"
    LIBS="$LIBS $MPI_LIBS"
    AC_MSG_CHECKING([whether programs link to the MPI of $MPICC])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
        [[int given; return MPI_Init_thread(0, 0, MPI_THREAD_SERIALIZED, &given);]])],
      [zinf_have_mpi=yes])
    AC_MSG_RESULT([$zinf_have_mpi])
    CPPFLAGS=$zinf_saved_cppflags
    LIBS=$zinf_saved_libs])
  AS_IF([test $zinf_have_mpi = no && test "x$with_mpi" != xcheck],
    [AC_MSG_ERROR([--with-mpi was given but no MPI was found: install libopenmpi-dev or libmpich-dev])])])
AS_IF([test $zinf_have_mpi = yes], [
  zinf_mpi_summary="by $MPICC"
  AC_DEFINE([ZINF_HAVE_MPI], [1], [the build found an MPI])])
AS_IF([test $zinf_have_mpi = yes],
  [MPIRUN=`AS_DIRNAME(["$MPICC"])`/`basename "$MPICC" | sed 's/mpicc/mpirun/'`
   AS_IF([test ! -x "$MPIRUN"], [MPIRUN=mpirun])])
AC_SUBST([MPIRUN])
AC_SUBST([MPI_CPPFLAGS])
AC_SUBST([MPI_LIBS])
AM_CONDITIONAL([HAVE_MPI], [test $zinf_have_mpi = yes])
])
