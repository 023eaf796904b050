# ZINF_SENTENCEPIECE: --with-sentencepiece[=yes|no|check], conditional HAVE_SENTENCEPIECE and the
# flags. An installation without pkg-config's file is not looked for.
AC_DEFUN([ZINF_SENTENCEPIECE], [
AC_ARG_WITH([sentencepiece],
  [AS_HELP_STRING([--without-sentencepiece], [do not read tokenizer.model, even where libsentencepiece is installed])],
  [], [with_sentencepiece=check])
zinf_sentencepiece_summary="no (tokenizer.model is refused; install libsentencepiece-dev)"
AS_IF([test "x$with_sentencepiece" = xno],
  [zinf_sentencepiece_summary="no (not wanted)"],
  [PKG_CHECK_MODULES([SENTENCEPIECE], [sentencepiece],
    [zinf_sentencepiece_summary=yes
     # The part that trains models is not needed; the wrapper is C++ in a library of C.
     SENTENCEPIECE_LIBS="-lsentencepiece -lstdc++"
     AC_DEFINE([ZINF_HAVE_SENTENCEPIECE], [1], [tokenizer.model is read])],
    [AS_IF([test "x$with_sentencepiece" = xyes],
      [AC_MSG_ERROR([SentencePiece not found: install libsentencepiece-dev, or configure --without-sentencepiece])])])])
AM_CONDITIONAL([HAVE_SENTENCEPIECE], [test "x$zinf_sentencepiece_summary" = xyes])
AC_SUBST([SENTENCEPIECE_CFLAGS])
AC_SUBST([SENTENCEPIECE_LIBS])
])
