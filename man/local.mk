dist_man_MANS += man/zinf.1 man/zinf-init.1 man/zinf-train.1 man/zinf-eval.1 \
	man/zinf-generate.1 man/zinf-gradients.1 man/zinf-inspect.1 man/zinf-config.1 \
	man/zinf-report.1 man/zinf-doctor.1 man/zinf-bench.1 man/zinf-bench-nvme.1 man/zinf-bench-optim.1 \
	man/zinf-bench-gemm.1 man/zinf-bench-attention.1 man/zinf-bench-pcie.1 \
	man/zinf-export.1 man/zinf-estimate.1 man/zinf-resume-info.1
