libcore_la_SOURCES += kernels/kernels.h kernels/products.h kernels/route.h kernels/check.h kernels/check.c kernels/device.h kernels/device.c \
	kernels/device_cuda_load.c kernels/device_described.c kernels/cuda/workspace.h kernels/host.h kernels/operations.h kernels/host_simd.h kernels/host_math.h \
	kernels/host_loops.h kernels/host_tiles.h kernels/host_tiles_relative.h kernels/host_tiles_forward.h kernels/host_tiles_backward.h kernels/host_table.h kernels/host_queue.c \
	kernels/host_gemm.h kernels/host_gemm_lanes.h kernels/host_gemm_avx512_pack.h kernels/host_gemm_avx512_pairs.h kernels/host_gemm_avx512_tiles.h \
	kernels/host_gemm.c kernels/host_matmul.c kernels/host_float8.c kernels/host_attention.c kernels/host_norm.c kernels/host_activation.c \
 kernels/host_route.c kernels/host_unfold.c \
	kernels/host_rows.h kernels/host_cached.h kernels/host_attention_cached.c kernels/host_few_rows.c \
	kernels/host_embedding.c kernels/host_loss.c kernels/host_elementwise.c
libcore_la_SOURCES += kernels/attention.h kernels/float8.h kernels/host_tiles_product.h

# What the program and its CUDA module must have been compiled with alike: the headers that device.h
# reaches. Both have their checksum, which is compared when the module is loaded.
device_interface_headers = $(srcdir)/src/base/base.h $(srcdir)/src/base/memory.h $(srcdir)/kernels/device.h $(srcdir)/kernels/kernels.h \
	$(srcdir)/kernels/attention.h $(srcdir)/kernels/float8.h $(srcdir)/kernels/loss.h $(srcdir)/kernels/magnitude.h \
	$(srcdir)/kernels/packed.h $(srcdir)/kernels/products.h $(srcdir)/kernels/quantized.h $(srcdir)/kernels/recurrent.h \
	$(srcdir)/kernels/route.h
kernels/device_interface.h: $(device_interface_headers)
	$(AM_V_GEN)$(MKDIR_P) kernels && sum=`cat $(device_interface_headers) | cksum` && set -- $$sum && \
	  echo "#define ZINF_DEVICE_INTERFACE \"$(VERSION)-$$1\"" >$@.new && mv $@.new $@
kernels/device_cuda_load.lo kernels/cuda/zinf_cuda_la-module.lo kernels/cuda/tests_zinf_cuda_standin_la-module.lo: \
	kernels/device_interface.h
CLEANFILES += kernels/device_interface.h
libcore_la_SOURCES += kernels/recurrent.h kernels/host_scan.h kernels/host_scan_tile.h kernels/host_scan_loops.h kernels/host_scan_gradients.h kernels/host_scan.c kernels/host_convolution.c
program_tests += tests/kernels/kernels_recurrent_test tests/kernels/kernels_pieces_test

# Packed weights: what a product and a sum are rounded to is the bytes of files and the bits of
# every device, so nothing is fused.
libcore_la_SOURCES += kernels/quantized.h kernels/host_quantized.h kernels/packed.h kernels/host_packed.c
noinst_LTLIBRARIES += libkernels_quantized.la
libkernels_quantized_la_SOURCES = kernels/quantized.c kernels/host_quantized.c
libkernels_quantized_la_CFLAGS = $(AM_CFLAGS) -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
libcore_la_LIBADD += libkernels_quantized.la
program_tests += tests/kernels/kernels_quantized_test
EXTRA_DIST += tests/compare/against_bitsandbytes.py

# The inner loops once per instruction set. No trapping and no errno: loops with conditions and
# square roots become vectors; NaN and infinity keep their meaning. CFLAGS come behind these and may
# lower the level of optimisation; results then have the bits of -O2 all the same (m4/isa.m4).
KERNELS_SIMD_CFLAGS = $(AM_CFLAGS) -O3 -ftree-vectorize $(FUSE_CFLAGS) -fno-math-errno \
	-fno-trapping-math
noinst_LTLIBRARIES += libkernels_scalar.la
libkernels_scalar_la_SOURCES = kernels/host_simd_scalar.c
libkernels_scalar_la_CFLAGS = $(KERNELS_SIMD_CFLAGS)
libcore_la_LIBADD += libkernels_scalar.la
if HAVE_AVX2
noinst_LTLIBRARIES += libkernels_avx2.la
libkernels_avx2_la_SOURCES = kernels/host_simd_avx2.c
libkernels_avx2_la_CFLAGS = $(KERNELS_SIMD_CFLAGS) $(AVX2_CFLAGS)
libcore_la_LIBADD += libkernels_avx2.la
endif
if HAVE_AVX512
noinst_LTLIBRARIES += libkernels_avx512.la
libkernels_avx512_la_SOURCES = kernels/host_simd_avx512.c kernels/host_gemm_avx512.c
libkernels_avx512_la_CFLAGS = $(KERNELS_SIMD_CFLAGS) $(AVX512_CFLAGS)
libcore_la_LIBADD += libkernels_avx512.la
endif
if HAVE_AVX512_BF16
noinst_LTLIBRARIES += libkernels_avx512_bf16.la
libkernels_avx512_bf16_la_SOURCES = kernels/host_gemm_avx512_bf16.c
libkernels_avx512_bf16_la_CFLAGS = $(KERNELS_SIMD_CFLAGS) $(AVX512_BF16_CFLAGS)
libcore_la_LIBADD += libkernels_avx512_bf16.la
endif
if HAVE_AMX_BF16
noinst_LTLIBRARIES += libkernels_amx_bf16.la
libkernels_amx_bf16_la_SOURCES = kernels/host_gemm_amx_bf16.c
libkernels_amx_bf16_la_CFLAGS = $(KERNELS_SIMD_CFLAGS) $(AMX_BF16_CFLAGS)
libcore_la_LIBADD += libkernels_amx_bf16.la

# The same source, its tile instructions answered by a model in C.
noinst_LTLIBRARIES += tests/libamx_model.la
tests_libamx_model_la_SOURCES = tests/support/amx_model.c
tests_libamx_model_la_CFLAGS = $(KERNELS_SIMD_CFLAGS) $(AVX512_CFLAGS)
program_tests += tests/kernels/kernels_amx_test
tests_kernels_kernels_amx_test_LDADD = tests/libamx_model.la $(TEST_LDADD)
endif

KERNELS_TESTS = tests/kernels/kernels_matmul_test tests/kernels/kernels_attention_test \
	tests/kernels/kernels_elementwise_test tests/kernels/kernels_norm_test \
	tests/kernels/kernels_rows_test tests/kernels/kernels_rope_test tests/kernels/kernels_scores_test
program_tests += $(KERNELS_TESTS) tests/kernels/kernels_route_test

noinst_PROGRAMS += tests/bench/matmul_bench tests/bench/kernels_bench
tests_bench_matmul_bench_LDADD = $(LDADD) $(BLAS_LIBS)

program_tests += tests/kernels/kernels_cached_test

program_tests += tests/kernels/kernels_cross_test tests/kernels/kernels_float8_test
program_tests += tests/kernels/kernels_parts_test
EXTRA_DIST += tests/fixtures/make_float8.py tests/fixtures/float8.json \
	tests/fixtures/make_float8_losses.py tests/fixtures/float8/losses.json \
	tests/fixtures/float8/llama/config.json tests/fixtures/float8/llama/model.safetensors

# Losses, of pairs too, and noise on a model's input.
libcore_la_SOURCES += kernels/loss.h kernels/host_preference.c
program_tests += tests/kernels/kernels_preference_test

# Direction and magnitude of weights apart.
libcore_la_SOURCES += kernels/magnitude.h kernels/host_magnitude.c kernels/host_xielu.c
program_tests += tests/kernels/kernels_magnitude_test

program_tests += tests/kernels/kernels_relative_test
