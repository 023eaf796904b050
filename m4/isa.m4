# ZINF_ISA: conditionals HAVE_AVX2, HAVE_AVX512, HAVE_AVX512_BF16 and HAVE_AMX_BF16, and the flags
# of the per-ISA files. FUSE_CFLAGS: a product and a sum become one operation, with one rounding, at
# every level of optimisation but 0; gcc does so from -O2 on by itself, and clang always.
AC_DEFUN([ZINF_ISA], [
AVX2_CFLAGS="-mavx2 -mfma -mf16c"
AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512"
AVX512_BF16_CFLAGS="$AVX512_CFLAGS -mavx512bf16"
AMX_BF16_CFLAGS="$AVX512_BF16_CFLAGS -mamx-tile -mamx-bf16"
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
AC_CACHE_CHECK([whether $CC accepts AVX512-BF16 flags], [zinf_cv_avx512_bf16],
  [CFLAGS="$zinf_isa_save $AVX512_BF16_CFLAGS"
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[
     __m512 x = _mm512_setzero_ps(); x = _mm512_dpbf16_ps(x, (__m512bh)x, (__m512bh)x); (void)x;]])],
     [zinf_cv_avx512_bf16=$zinf_cv_avx512], [zinf_cv_avx512_bf16=no])])
AC_CACHE_CHECK([whether $CC accepts AMX flags], [zinf_cv_amx_bf16],
  [CFLAGS="$zinf_isa_save $AMX_BF16_CFLAGS"
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]], [[
     _tile_zero(0); _tile_dpbf16ps(0, 4, 6); _tile_release();]])],
     [zinf_cv_amx_bf16=$zinf_cv_avx512_bf16], [zinf_cv_amx_bf16=no])])
AC_CACHE_CHECK([whether $CC accepts -fexpensive-optimizations], [zinf_cv_fuse],
  [CFLAGS="$zinf_isa_save -Werror -fexpensive-optimizations"
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM()], [zinf_cv_fuse=yes], [zinf_cv_fuse=no])])
CFLAGS="$zinf_isa_save"
AS_IF([test $zinf_cv_fuse = yes], [FUSE_CFLAGS=-fexpensive-optimizations], [FUSE_CFLAGS=])
AC_SUBST([FUSE_CFLAGS])
AS_IF([test $zinf_cv_avx2 = yes], [zinf_isa_summary="$zinf_isa_summary avx2"
  AC_DEFINE([ZINF_HAVE_AVX2], [1], [the AVX2 files are built])])
AS_IF([test $zinf_cv_avx512 = yes], [zinf_isa_summary="$zinf_isa_summary avx512"
  AC_DEFINE([ZINF_HAVE_AVX512], [1], [the AVX-512 files are built])])
AS_IF([test $zinf_cv_avx512_bf16 = yes], [zinf_isa_summary="$zinf_isa_summary avx512_bf16"
  AC_DEFINE([ZINF_HAVE_AVX512_BF16], [1], [the AVX512-BF16 files are built])])
AS_IF([test $zinf_cv_amx_bf16 = yes], [zinf_isa_summary="$zinf_isa_summary amx_bf16"
  AC_DEFINE([ZINF_HAVE_AMX_BF16], [1], [the AMX files are built])])
AM_CONDITIONAL([HAVE_AVX2], [test $zinf_cv_avx2 = yes])
AM_CONDITIONAL([HAVE_AVX512], [test $zinf_cv_avx512 = yes])
AM_CONDITIONAL([HAVE_AVX512_BF16], [test $zinf_cv_avx512_bf16 = yes])
AM_CONDITIONAL([HAVE_AMX_BF16], [test $zinf_cv_amx_bf16 = yes])
AC_SUBST([AVX2_CFLAGS])
AC_SUBST([AVX512_CFLAGS])
AC_SUBST([AVX512_BF16_CFLAGS])
AC_SUBST([AMX_BF16_CFLAGS])
])
