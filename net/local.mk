libcore_la_SOURCES += net/net.h net/net_engine.h net/net.c net/net_watch.c net/net_split.c net/mesh.h net/mesh.c net/net_threads.c net/net_load.c
libcore_la_SOURCES += net/net_room.h net/net_room.c net/net_room_split.c net/net_seats.c net/net_sum.c
libcore_la_SOURCES += net/nccl_calls.h net/net_nccl.h net/net_nccl.c \
	net/net_nccl_collectives.c net/net_nccl_end.c net/net_nccl_load.c
libcore_la_SOURCES += net/net_tcp.h net/net_tcp.c net/net_tcp_meet.c \
	net/net_tcp_address.c net/net_tcp_proof.c
INSTALLED_H += net/net.h

# The MPI is linked to by a module alone, so that libzinf starts on machines without one.
mpi_module_sources = net/net_mpi.c
EXTRA_DIST += $(mpi_module_sources)
if HAVE_MPI
pkglib_LTLIBRARIES += zinf-mpi.la
zinf_mpi_la_SOURCES = $(mpi_module_sources)
zinf_mpi_la_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CPPFLAGS)
zinf_mpi_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
	-export-symbols-regex '^zinf_net_mpi_start$$'
zinf_mpi_la_LIBADD = $(MPI_LIBS)
endif

check_PROGRAMS += tests/net/net_ranks
program_tests += tests/net/net_test tests/net/mesh_test
script_tests += tests/net/net_mpi_test.sh
# One rank of those that tests/net/net_mpi_test.sh starts.

# Seats of one process, and of several.
program_tests += tests/net/net_seats_test

# What is called of NCCL against its own header, where there is one.
script_tests += tests/net/nccl_header_test.sh

# Ranks over sockets, which here are threads; and processes as torchrun starts them.
program_tests += tests/net/net_tcp_test
check_PROGRAMS += tests/net/strangers
script_tests += tests/ranks/torchrun_test.sh tests/ranks/ends_test.sh
