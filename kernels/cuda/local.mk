# The CUDA device is a module of its own, so that libzinf links to no CUDA library.
cuda_host_sources = kernels/cuda/workspace.h kernels/cuda/runtime.h kernels/cuda/device.h kernels/cuda/launch.h \
	kernels/cuda/context.c kernels/cuda/pinned.c kernels/cuda/device.c kernels/cuda/queue.c kernels/cuda/matmul.h kernels/cuda/matmul.c kernels/cuda/product_list.c kernels/cuda/products.c kernels/cuda/operations.c \
	kernels/cuda/operations_relative.c
cuda_module_sources = kernels/cuda/module.c kernels/check.h kernels/check.c src/base/dtype.c \
	src/base/size.c
cuda_kernels = kernels/cuda/columns.cu kernels/cuda/elementwise.cu kernels/cuda/embedding.cu \
	kernels/cuda/gated.cu kernels/cuda/xielu.cu kernels/cuda/loss.cu kernels/cuda/squared_error.cu \
	kernels/cuda/preference.cu kernels/cuda/noise.cu kernels/cuda/norm.cu kernels/cuda/norm_rows.cu kernels/cuda/norm_gradient.cu kernels/cuda/rectangle.cu \
	kernels/cuda/rope.cu kernels/cuda/quantized.cu kernels/cuda/packed.cu kernels/cuda/update.cu kernels/cuda/route.cu \
	kernels/cuda/attention_plain.cu kernels/cuda/attention_mma_forward.cu \
	kernels/cuda/attention_mma_backward.cu kernels/cuda/attention_mma_distance.cu kernels/cuda/attention_distance.cu \
	kernels/cuda/attention_cached.cu kernels/cuda/attention_relative.cu kernels/cuda/unfold.cu \
	kernels/cuda/magnitude.cu kernels/cuda/sinks.cu kernels/cuda/heads.cu kernels/cuda/float8.cu kernels/cuda/convolution.cu kernels/cuda/scan.cu
cuda_kernel_headers = kernels/cuda/kernel.cuh kernels/cuda/block.cuh \
	kernels/cuda/activation.cuh kernels/cuda/scan.cuh kernels/cuda/rows.cuh kernels/cuda/teams.cuh kernels/cuda/residual.cuh \
	kernels/cuda/philox.cuh kernels/cuda/softcap.cuh kernels/cuda/attention.cuh \
	kernels/cuda/mma.cuh kernels/cuda/attention_mma.cuh \
	kernels/cuda/attention_mma_gradient.cuh kernels/cuda/attention_plain.cuh
EXTRA_DIST += $(cuda_kernels) $(cuda_kernel_headers) kernels/cuda/check_ptxas.sh

if HAVE_CUDA
pkglib_LTLIBRARIES += zinf-cuda.la
zinf_cuda_la_SOURCES = $(cuda_host_sources) $(cuda_module_sources) $(cuda_kernels)
zinf_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
zinf_cuda_la_CFLAGS = $(AM_CFLAGS)
zinf_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-export-symbols-regex '^zinf_device_cuda_(create|gpus|interface)$$' -Wl,-rpath,\$$ORIGIN/lib
zinf_cuda_la_LIBADD = $(CUDA_LIBS)

# ptxas reports what each kernel takes; check_ptxas.sh fails the build on spills.
nvcc_verbose = $(nvcc_verbose_@AM_V@)
nvcc_verbose_ = $(nvcc_verbose_@AM_DEFAULT_V@)
nvcc_verbose_0 = @echo "  NVCC    " $@;
NVCC_COMPILE = $(NVCC) --forward-unknown-to-host-compiler -std=c++17 -O3 --threads 2 \
	-Xptxas -v $(AM_CPPFLAGS) $(CPPFLAGS) $(CUDA_GENCODE) $(NVCCFLAGS)
SUFFIXES = .cu
.cu.lo:
	@$(MKDIR_P) $(@D)
	$(nvcc_verbose)$(LIBTOOL) $(AM_LIBTOOLFLAGS) --silent --tag=CC --mode=compile $(NVCC_COMPILE) \
	  -MD -MP -MT $@ -MF $@.d -c -o $@ $< >$@.log 2>&1 || { cat $@.log >&2; exit 1; }
	@$(SHELL) $(srcdir)/kernels/cuda/check_ptxas.sh $@.log || { rm -f $@; exit 1; }
-include kernels/cuda/*.lo.d
endif

# The device against a stand-in for CUDA, on any machine: see tests/cuda_standin/standin.h.
cuda_tests = tests/cuda/cuda_recurrent_test tests/cuda/cuda_float8_test tests/cuda/cuda_quantized_test tests/cuda/cuda_packed_test tests/cuda/cuda_route_test tests/cuda/cuda_rope_test tests/cuda/cuda_update_test tests/cuda/cuda_train_test tests/cuda/cuda_elementwise_test tests/cuda/cuda_rows_test tests/cuda/cuda_matmul_test \
	tests/cuda/cuda_attention_test tests/cuda/cuda_relative_test tests/cuda/cuda_magnitude_test tests/cuda/cuda_queues_test tests/cuda/cuda_model_test
EXTRA_DIST += tests/bench/gpu.sh tests/bench/gpus.sh tests/bench/gpu_common.sh \
	tests/bench/torch_gpt2_gpu.py scripts/bundle.sh \
	scripts/registers.sh tests/cuda/bundle_chroot.sh
if CUDA_STANDIN
standin_CPPFLAGS = -I$(srcdir)/tests/cuda_standin $(TEST_CPPFLAGS) -DCUDA_STANDIN
# What runs the work is not instrumented for the thread sanitizer, and in what runs on a kernel's
# threads calls and returns are not: it knows nothing of their stacks (tests/cuda_standin/order.h).
check_LTLIBRARIES += libcuda_standin_hidden.la libcuda_standin.la
libcuda_standin_hidden_la_SOURCES = tests/cuda_standin/cuda_runtime_api.h \
	tests/cuda_standin/standin.h tests/cuda_standin/machine.c tests/cuda_standin/memory.c \
	tests/cuda_standin/queue.c \
	tests/cuda_standin/copy.c tests/cuda_standin/order.h tests/cuda_standin/order.c \
	tests/cuda_standin/fiber.h tests/cuda_standin/fiber.c tests/cuda_standin/simt.h \
	tests/cuda_standin/simt.c tests/cuda_standin/nccl.h tests/cuda_standin/nccl.c \
	tests/cuda_standin/nccl_launch.c tests/cuda_standin/nccl_run.c \
	tests/cuda_standin/nccl_calls.c tests/cuda_standin/nccl_board.h tests/cuda_standin/nccl_board.c \
	tests/cuda_standin/shared.h tests/cuda_standin/shared.c
libcuda_standin_hidden_la_CPPFLAGS = $(standin_CPPFLAGS)
libcuda_standin_hidden_la_CFLAGS = $(AM_CFLAGS) -fno-sanitize=thread
libcuda_standin_la_SOURCES = $(cuda_host_sources) tests/cuda_standin/cublasLt.h \
	tests/cuda_standin/nvtx3/nvToolsExt.h tests/cuda_standin/cublaslt.c \
	tests/cuda_standin/product.h tests/cuda_standin/product.c \
	tests/cuda_standin/simt_mma.h tests/cuda_standin/kernels.cpp \
	tests/cuda_standin/kernels_attention.cpp
libcuda_standin_la_CPPFLAGS = $(standin_CPPFLAGS)
libcuda_standin_la_CXXFLAGS = -std=gnu++17 -O2 -Wall -Wextra -fno-exceptions -fno-rtti \
	$(SAN_CFLAGS) $(TSAN_NO_CALLS)
libcuda_standin_la_LIBADD = libcuda_standin_hidden.la

# The same as a module for the program and for trainings; -rpath makes a shared object of it.
check_LTLIBRARIES += tests/zinf-cuda-standin.la
tests_zinf_cuda_standin_la_SOURCES = $(cuda_module_sources) tests/cuda_standin/module.c
tests_zinf_cuda_standin_la_CPPFLAGS = $(standin_CPPFLAGS)
tests_zinf_cuda_standin_la_CFLAGS = $(AM_CFLAGS)
tests_zinf_cuda_standin_la_LIBADD = libcuda_standin.la -lstdc++
tests_zinf_cuda_standin_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath $(abs_builddir)

standin_tests = tests/cuda/cuda_standin_float8_test tests/cuda/cuda_standin_quantized_test tests/cuda/cuda_standin_packed_test tests/cuda/cuda_standin_route_test tests/cuda/cuda_standin_rope_test tests/cuda/cuda_standin_update_test tests/cuda/cuda_standin_elementwise_test tests/cuda/cuda_standin_rows_test \
	tests/cuda/cuda_standin_matmul_test tests/cuda/cuda_standin_attention_test tests/cuda/cuda_standin_relative_test tests/cuda/cuda_standin_magnitude_test \
	tests/cuda/cuda_standin_queues_test tests/cuda/cuda_standin_races_test tests/cuda/cuda_standin_model_test \
	tests/cuda/cuda_standin_train_test
standin_tests += tests/cuda/cuda_standin_recurrent_test
tests_cuda_cuda_standin_recurrent_test_SOURCES = tests/cuda/cuda_recurrent_test.c
tests_cuda_cuda_standin_recurrent_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_recurrent_test_LDADD = $(standin_LDADD)
program_tests += $(standin_tests)
standin_LDADD = libcuda_standin.la $(TEST_LDADD)
tests_cuda_cuda_standin_elementwise_test_SOURCES = tests/cuda/cuda_elementwise_test.c
tests_cuda_cuda_standin_elementwise_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_elementwise_test_LDADD = $(standin_LDADD)
program_tests += tests/cuda/cuda_standin_machines_test
tests_cuda_cuda_standin_machines_test_SOURCES = tests/cuda/cuda_machines_test.c
tests_cuda_cuda_standin_machines_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_machines_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_rows_test_SOURCES = tests/cuda/cuda_rows_test.c
tests_cuda_cuda_standin_rows_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_rows_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_quantized_test_SOURCES = tests/cuda/cuda_quantized_test.c
tests_cuda_cuda_standin_quantized_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_quantized_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_packed_test_SOURCES = tests/cuda/cuda_packed_test.c
tests_cuda_cuda_standin_packed_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_packed_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_float8_test_SOURCES = tests/cuda/cuda_float8_test.c
tests_cuda_cuda_standin_float8_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_float8_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_route_test_SOURCES = tests/cuda/cuda_route_test.c
tests_cuda_cuda_standin_route_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_route_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_rope_test_SOURCES = tests/cuda/cuda_rope_test.c
tests_cuda_cuda_standin_rope_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_rope_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_matmul_test_SOURCES = tests/cuda/cuda_matmul_test.c
tests_cuda_cuda_standin_matmul_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_matmul_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_attention_test_SOURCES = tests/cuda/cuda_attention_test.c
tests_cuda_cuda_standin_attention_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_attention_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_relative_test_SOURCES = tests/cuda/cuda_relative_test.c
tests_cuda_cuda_standin_relative_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_relative_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_magnitude_test_SOURCES = tests/cuda/cuda_magnitude_test.c
tests_cuda_cuda_standin_magnitude_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_magnitude_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_queues_test_SOURCES = tests/cuda/cuda_queues_test.c
tests_cuda_cuda_standin_queues_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_queues_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_races_test_SOURCES = tests/cuda/cuda_queues_test.c
tests_cuda_cuda_standin_races_test_CPPFLAGS = $(standin_CPPFLAGS) -DCUDA_RACES=true
tests_cuda_cuda_standin_races_test_CFLAGS = $(AM_CFLAGS) $(TSAN_CFLAGS)
tests_cuda_cuda_standin_races_test_LDFLAGS = $(AM_LDFLAGS) $(TSAN_CFLAGS)
tests_cuda_cuda_standin_races_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_model_test_SOURCES = tests/cuda/cuda_model_test.c
tests_cuda_cuda_standin_model_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_model_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_update_test_SOURCES = tests/cuda/cuda_update_test.c
tests_cuda_cuda_standin_update_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_update_test_LDADD = $(standin_LDADD)
tests_cuda_cuda_standin_train_test_SOURCES = tests/cuda/cuda_train_test.c
tests_cuda_cuda_standin_train_test_CPPFLAGS = $(standin_CPPFLAGS)

program_tests += tests/cuda/cuda_standin_blas_test
tests_cuda_cuda_standin_blas_test_SOURCES = tests/cuda/cuda_blas_test.c
tests_cuda_cuda_standin_blas_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_blas_test_LDADD = $(standin_LDADD)

# The stand-in for NCCL, which is in that for CUDA, and the links of net/ on it.
program_tests += tests/cuda/cuda_standin_nccl_test tests/net/net_nccl_test \
	tests/cuda/cuda_standin_seats_test
tests_cuda_cuda_standin_nccl_test_SOURCES = tests/cuda/cuda_nccl_test.c
tests_cuda_cuda_standin_nccl_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_nccl_test_LDADD = $(standin_LDADD)
tests_net_net_nccl_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_seats_test_CPPFLAGS = $(standin_CPPFLAGS)

# The same between processes.
program_tests += tests/cuda/cuda_standin_nccl_ranks_test
tests_cuda_cuda_standin_nccl_ranks_test_SOURCES = tests/cuda/cuda_nccl_ranks_test.c
tests_cuda_cuda_standin_nccl_ranks_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_cuda_standin_nccl_ranks_test_LDADD = $(standin_LDADD)

# One process of those that tests/net/nccl_ranks_test.sh starts.
check_PROGRAMS += tests/net/linked_ranks
tests_net_linked_ranks_CPPFLAGS = $(standin_CPPFLAGS)

program_tests += tests/cuda/device_described_test
tests_cuda_device_described_test_CPPFLAGS = $(standin_CPPFLAGS)
tests_cuda_device_described_test_LDADD = $(standin_LDADD)
endif

script_tests += tests/net/nccl_ranks_test.sh tests/net/nccl_faults_test.sh \
	tests/cuda/cuda_libraries_test.sh tests/cli/doctor_test.sh tests/cuda/gpu_checks_test.sh \
	tests/cuda/cuda_messages_test.sh tests/cuda/bundle_test.sh tests/cuda/cuda_classify_test.sh tests/cuda/cuda_tf32_test.sh tests/cuda/cuda_products_test.sh \
	tests/cuda/ptxas_test.sh

# The same cases on the machine's own GPU; skipped where there is none.
program_tests += $(cuda_tests)
