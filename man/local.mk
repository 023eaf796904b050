dist_man_MANS += man/zinf.1 man/zinf-init.1 man/zinf-train.1 man/zinf-eval.1 man/zinf-data.1 \
	man/zinf-generate.1 man/zinf-gradients.1 man/zinf-inspect.1 man/zinf-config.1 \
	man/zinf-report.1 man/zinf-doctor.1 man/zinf-bench.1 man/zinf-bench-nvme.1 man/zinf-bench-optim.1 \
	man/zinf-bench-gemm.1 man/zinf-bench-attention.1 man/zinf-bench-pcie.1 man/zinf-bench-memory.1 man/zinf-bench-all.1 \
	man/zinf-estimate.1 man/zinf-export.1 man/zinf-plot.1 man/zinf-resume-info.1 man/zinf-verify.1

# man zinf_store_create finds the page that describes it.
install-data-hook:
	for page in zinf_aio zinf_optim; do \
	  for name in `$(SED) -n -e 's/^\.F[no] \(zinf_[a-z_0-9]*\).*/\1/p' \
	      -e 's/^\.BI ".*\(zinf_[a-z_0-9]*\)(.*/\1/p' $(srcdir)/man/$$page.3`; do \
	    echo ".so man3/$$page.3" >'$(DESTDIR)$(man3dir)/'$$name.3 || exit 1; done; done
uninstall-hook:
	for page in zinf_aio zinf_optim; do \
	  for name in `$(SED) -n -e 's/^\.F[no] \(zinf_[a-z_0-9]*\).*/\1/p' \
	      -e 's/^\.BI ".*\(zinf_[a-z_0-9]*\)(.*/\1/p' $(srcdir)/man/$$page.3`; do \
	    rm -f '$(DESTDIR)$(man3dir)/'$$name.3; done; done
