# ZINF_MICROHTTPD: --with-microhttpd[=yes|no|check], conditional HAVE_MICROHTTPD and the flags.
AC_DEFUN([ZINF_MICROHTTPD], [
AC_ARG_WITH([microhttpd],
  [AS_HELP_STRING([--without-microhttpd], [build zinf serve without its server, even where libmicrohttpd is installed])],
  [], [with_microhttpd=check])
zinf_microhttpd_summary="no (zinf serve is refused; install libmicrohttpd-dev)"
AS_IF([test "x$with_microhttpd" = xno],
  [zinf_microhttpd_summary="no (not wanted)"],
  [PKG_CHECK_MODULES([MICROHTTPD], [libmicrohttpd >= 0.9.71], [zinf_microhttpd_summary=yes],
    [AS_IF([test "x$with_microhttpd" = xyes],
      [AC_MSG_ERROR([libmicrohttpd not found: install libmicrohttpd-dev, or configure --without-microhttpd])])])])
AM_CONDITIONAL([HAVE_MICROHTTPD], [test "x$zinf_microhttpd_summary" = xyes])
])
