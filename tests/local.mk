# Tests of each folder are declared in that folder's local.mk; here what is common.
EXTRA_DIST += tests/tap.h
TEST_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
TEST_LDADD = libcore.la $(EXTERNAL_LIBS)
