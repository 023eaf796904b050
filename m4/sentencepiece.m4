# ZINF_SENTENCEPIECE: --with-sentencepiece[=yes|no|check], conditional HAVE_SENTENCEPIECE and the
# flags. An installation without pkg-config's file is not looked for; one that the C++ compiler
# cannot use, since there is none for instance, counts as absent.
AC_DEFUN([_ZINF_SENTENCEPIECE_COMPILES], [
AC_LANG_PUSH([C++])
zinf_saved_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS $SENTENCEPIECE_CFLAGS"
AC_MSG_CHECKING([whether $CXX compiles with SentencePiece])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <sentencepiece_processor.h>]])],
  [zinf_sentencepiece_compiles=yes], [zinf_sentencepiece_compiles=no])
AC_MSG_RESULT([$zinf_sentencepiece_compiles])
CPPFLAGS=$zinf_saved_CPPFLAGS
AC_LANG_POP([C++])
])
AC_DEFUN([ZINF_SENTENCEPIECE], [
AC_ARG_WITH([sentencepiece],
  [AS_HELP_STRING([--without-sentencepiece], [do not read tokenizer.model, even where libsentencepiece is installed])],
  [], [with_sentencepiece=check])
zinf_sentencepiece_summary="no (tokenizer.model is refused; install libsentencepiece-dev and g++)"
zinf_sentencepiece_compiles=no
AS_IF([test "x$with_sentencepiece" = xno],
  [zinf_sentencepiece_summary="no (not wanted)"],
  [PKG_CHECK_MODULES([SENTENCEPIECE], [sentencepiece], [_ZINF_SENTENCEPIECE_COMPILES], [:])
   AS_IF([test "$zinf_sentencepiece_compiles" = yes],
    [zinf_sentencepiece_summary=yes
     # The part that trains models is not needed; the wrapper is C++ in a library of C.
     SENTENCEPIECE_LIBS="-lsentencepiece -lstdc++"
     SENTENCEPIECE_REQUIRES=", sentencepiece"
     AC_DEFINE([ZINF_HAVE_SENTENCEPIECE], [1], [tokenizer.model is read])],
    [test "x$with_sentencepiece" = xyes],
    [AC_MSG_ERROR([no SentencePiece that compiles: install libsentencepiece-dev and g++, or configure --without-sentencepiece])])])
AM_CONDITIONAL([HAVE_SENTENCEPIECE], [test "x$zinf_sentencepiece_summary" = xyes])
AC_SUBST([SENTENCEPIECE_CFLAGS])
AC_SUBST([SENTENCEPIECE_LIBS])
AC_SUBST([SENTENCEPIECE_REQUIRES])
])
