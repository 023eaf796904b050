# The compiled CUDA module on an interpreter of its PTX: see tests/ptx/ptx.h.
ptx_sources = tests/ptx/ptx.h tests/ptx/code.h tests/ptx/builder.h tests/ptx/block.h tests/ptx/shadow.h tests/ptx/shadow_rules.h \
	tests/ptx/shadow.c tests/ptx/module.c tests/ptx/translate.c tests/ptx/operand.c \
	tests/ptx/choose.c tests/ptx/access.c tests/ptx/access_warp.c tests/ptx/warp.c tests/ptx/run.c tests/ptx/mutate.c \
	tests/ptx/fatbin.h tests/ptx/fatbin.c tests/ptx/cudart.c
ptx_standin_sources = tests/cuda_standin/machine.c tests/cuda_standin/memory.c \
	tests/cuda_standin/queue.c tests/cuda_standin/copy.c tests/cuda_standin/order.c \
	tests/cuda_standin/fiber.c tests/cuda_standin/cublaslt.c tests/cuda_standin/product.c tests/cuda_standin/module.c \
	tests/cuda_standin/nccl.h tests/cuda_standin/nccl.c tests/cuda_standin/nccl_launch.c tests/cuda_standin/nccl_run.c \
	tests/cuda_standin/nccl_calls.c tests/cuda_standin/nccl_board.h tests/cuda_standin/nccl_board.c \
	tests/cuda_standin/shared.h tests/cuda_standin/shared.c
EXTRA_DIST += $(ptx_sources) tests/ptx/lanes.h tests/ptx/lanes_integer.h tests/ptx/lanes_float.h \
	tests/ptx/lanes_table.h tests/ptx/lanes_scalar.c tests/ptx/lanes_avx2.c tests/ptx/exports.map \
	tests/ptx/suite.sh tests/ptx/mutations_test.c tests/ptx/mutants.h tests/ptx/mutants_attention.h \
	tests/ptx/mutants_rows.h tests/bench/cuda_counts.sh tests/bench/cuda_7b.sh

if PTX_TESTS
ptx_CPPFLAGS = $(TEST_CPPFLAGS) $(CUDA_CPPFLAGS) -DCUDA_STANDIN
# Registers are bytes that instructions read as what they like, and nothing is fused that PTX does
# not fuse.
ptx_CFLAGS = $(AM_CFLAGS) -fno-strict-aliasing -ffp-contract=off
check_LTLIBRARIES += tests/ptx/libptx_lanes.la tests/ptx/libcudart.la
tests_ptx_libptx_lanes_la_SOURCES = tests/ptx/lanes_scalar.c
tests_ptx_libptx_lanes_la_CPPFLAGS = $(ptx_CPPFLAGS)
tests_ptx_libptx_lanes_la_CFLAGS = $(ptx_CFLAGS) -O3 -fno-math-errno
if HAVE_AVX2
check_LTLIBRARIES += tests/ptx/libptx_lanes_avx2.la
tests_ptx_libptx_lanes_avx2_la_SOURCES = tests/ptx/lanes_avx2.c
tests_ptx_libptx_lanes_avx2_la_CPPFLAGS = $(ptx_CPPFLAGS)
tests_ptx_libptx_lanes_avx2_la_CFLAGS = $(ptx_CFLAGS) -O3 -fno-math-errno $(AVX2_CFLAGS)
ptx_avx2 = tests/ptx/libptx_lanes_avx2.la
endif

# It takes the place of libcudart.so.N and libcublasLt.so.N, by their names and symbol versions.
tests_ptx_libcudart_la_SOURCES = $(ptx_sources) $(ptx_standin_sources) src/base/dtype.c \
	src/base/error.c
tests_ptx_libcudart_la_CPPFLAGS = $(ptx_CPPFLAGS)
tests_ptx_libcudart_la_CFLAGS = $(ptx_CFLAGS)
tests_ptx_libcudart_la_LIBADD = tests/ptx/libptx_lanes.la $(ptx_avx2) $(ZSTD_LIBS) -lm
tests_ptx_libcudart_la_LDFLAGS = $(AM_LDFLAGS) -shared -version-info $(CUDA_MAJOR):0:0 \
	-rpath $(abs_builddir) -Wl,--version-script=tests/ptx/exports.ver
tests_ptx_libcudart_la_DEPENDENCIES = tests/ptx/libptx_lanes.la $(ptx_avx2) tests/ptx/exports.ver
tests/ptx/exports.ver: $(srcdir)/tests/ptx/exports.map
	@$(MKDIR_P) tests/ptx
	$(AM_V_GEN)sed 's/@MAJOR@/$(CUDA_MAJOR)/' $(srcdir)/tests/ptx/exports.map >$@
check_DATA = tests/ptx/lib/libcublasLt.so.$(CUDA_MAJOR)
tests/ptx/lib/libcublasLt.so.$(CUDA_MAJOR): tests/ptx/libcudart.la
	$(AM_V_GEN)$(MKDIR_P) tests/ptx/lib && rm -f tests/ptx/lib/* && \
	  ln -s ../.libs/libcudart.so.$(CUDA_MAJOR) tests/ptx/lib/libcudart.so.$(CUDA_MAJOR) && \
	  echo "$(CUDA_GENCODE)" | tr ' ' '\n' | sed -n 's/.*code=compute_//p' \
	    >tests/ptx/lib/generations && ln -s libcudart.so.$(CUDA_MAJOR) $@
CLEANFILES += tests/ptx/exports.ver tests/ptx/lib/*

program_tests += tests/ptx/mutations_test
script_tests += tests/ptx/kernels_test.sh tests/ptx/training_test.sh
check_PROGRAMS += tests/bench/loss_counts tests/bench/norm_counts
tests_ptx_mutations_test_CPPFLAGS = $(TEST_CPPFLAGS) -DCUDA_MAJOR_TEXT=\"$(CUDA_MAJOR)\"
endif
