dist_man_MANS += man/zinf.1 man/zinf-init.1 man/zinf-train.1 man/zinf-eval.1 man/zinf-embed.1 man/zinf-data.1 \
	man/zinf-generate.1 man/zinf-serve.1 man/zinf-gradients.1 man/zinf-inspect.1 man/zinf-config.1 \
	man/zinf-report.1 man/zinf-doctor.1 man/zinf-bench.1 man/zinf-bench-nvme.1 man/zinf-bench-optim.1 \
	man/zinf-bench-gemm.1 man/zinf-bench-attention.1 man/zinf-bench-pcie.1 man/zinf-bench-memory.1 man/zinf-bench-schedule.1 man/zinf-bench-all.1 \
	man/zinf-estimate.1 man/zinf-export.1 man/zinf-plot.1 man/zinf-resume-info.1 man/zinf-verify.1 man/zinf-launch.1 \
	man/zinf-guide.7 man/zinf-tasks.7 man/zinf-ranks.7 man/zinf-errors.7

# With the declarations of the headers that it describes.
api_declared = src/api/api.h src/train/checkpoints.h
nodist_man_MANS = man/zinf_api.3
CLEANFILES += man/zinf_api.3
EXTRA_DIST += man/zinf_api.3.in scripts/headers_in_man.awk scripts/man-options.sh
man/zinf_api.3: man/zinf_api.3.in scripts/headers_in_man.awk $(api_declared) examples/train.c
	$(AM_V_GEN)$(MKDIR_P) man && $(AWK) -v root='$(srcdir)' -f $(srcdir)/scripts/headers_in_man.awk \
	  $(srcdir)/man/zinf_api.3.in >$@.tmp && mv $@.tmp $@

# man zinf_store_create finds the page that describes it.
install-data-hook:
	for page in zinf_aio zinf_optim zinf_api; do \
	  file=$(srcdir)/man/$$page.3; test -f $$file || file=man/$$page.3; \
	  for name in `$(AWK) -f $(srcdir)/scripts/functions_of_man.awk $$file`; do \
	    echo ".so man3/$$page.3" >'$(DESTDIR)$(man3dir)/'$$name.3 || exit 1; done; done
uninstall-hook:
	for page in zinf_aio zinf_optim zinf_api; do \
	  file=$(srcdir)/man/$$page.3; test -f $$file || file=man/$$page.3; \
	  for name in `$(AWK) -f $(srcdir)/scripts/functions_of_man.awk $$file`; do \
	    rm -f '$(DESTDIR)$(man3dir)/'$$name.3; done; done
	for folder in '$(docdir)' '$(pkglibdir)'; do \
	  test ! -d "$(DESTDIR)$$folder" || \
	    find "$(DESTDIR)$$folder" -depth -type d -exec rmdir {} ';' 2>/dev/null || :; done
	for folder in '$(docdir)' '$(pkglibdir)' '$(includedir)' '$(man1dir)' '$(man3dir)' '$(man5dir)' \
	    '$(bashcompletiondir)' '$(zshcompletiondir)' '$(fishcompletiondir)' '$(pkgconfigdir)'; do \
	  while test "$$folder" != '$(prefix)' && test "$$folder" != /; do \
	    rmdir "$(DESTDIR)$$folder" 2>/dev/null || test ! -d "$(DESTDIR)$$folder" || break; \
	    folder=`dirname "$$folder"`; done; done
EXTRA_DIST += scripts/functions_of_man.awk
