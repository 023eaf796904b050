# ZINF_ISA: conditionals HAVE_AVX2 and HAVE_AVX512, and the flags of the per-ISA files.
AC_DEFUN([ZINF_ISA], [
AVX2_CFLAGS="-mavx2 -mfma -mf16c"
AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512"
zinf_isa_summary="scalar"
zinf_isa_save="$CFLAGS"
AC_CACHE_CHECK([whether $CC accepts AVX2 flags], [zinf_cv_avx2],
  [CFLAGS="$zinf_isa_save $AVX2_CFLAGS"
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[
     __m256 x = _mm256_setzero_ps(); x = _mm256_fmadd_ps(x, x, x); (void)x;]])],
     [zinf_cv_avx2=yes], [zinf_cv_avx2=no])])
AC_CACHE_CHECK([whether $CC accepts AVX-512 flags], [zinf_cv_avx512],
  [CFLAGS="$zinf_isa_save $AVX512_CFLAGS"
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[
     __m512 x = _mm512_setzero_ps(); x = _mm512_fmadd_ps(x, x, x); (void)x;]])],
     [zinf_cv_avx512=yes], [zinf_cv_avx512=no])])
CFLAGS="$zinf_isa_save"
AS_IF([test $zinf_cv_avx2 = yes], [zinf_isa_summary="$zinf_isa_summary avx2"
  AC_DEFINE([ZINF_HAVE_AVX2], [1], [the AVX2 files are built])])
AS_IF([test $zinf_cv_avx512 = yes], [zinf_isa_summary="$zinf_isa_summary avx512"
  AC_DEFINE([ZINF_HAVE_AVX512], [1], [the AVX-512 files are built])])
AM_CONDITIONAL([HAVE_AVX2], [test $zinf_cv_avx2 = yes])
AM_CONDITIONAL([HAVE_AVX512], [test $zinf_cv_avx512 = yes])
AC_SUBST([AVX2_CFLAGS])
AC_SUBST([AVX512_CFLAGS])
])
