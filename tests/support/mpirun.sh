# mpirun: for tests that start ranks as processes of an MPI; after tests/support/command.sh. ranks N
# COMMAND... starts it; no_mpi says why none can be started, or is empty. Variables make it work as
# root and with more ranks than CPUs, for Open MPI 4 and 5; MPICH asks for none. An mpirun whose ranks
# died all at once may stay, whatever it is asked.
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
OMPI_MCA_btl_vader_single_copy_mechanism=none # containers refuse it, with a message each time
OMP_NUM_THREADS=1
# Open MPI keeps thousands of blocks of its own to the end of a process, in parts that it has unloaded
# by then, which no list of suppressions can name. Leaks of ours show in ranks that are threads.
ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS-}
ZINF_MPI_MODULE=${ZINF_TEST_MPI_MODULE:-$BUILDDIR/.libs/zinf-mpi.so}
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_btl_vader_single_copy_mechanism \
    OMP_NUM_THREADS ASAN_OPTIONS ZINF_MPI_MODULE

no_mpi=
if [ ! -f "$ZINF_MPI_MODULE" ]; then
    no_mpi="no MPI was found when this was configured"
elif ! command -v "${MPIRUN:-mpirun}" >/dev/null; then
    no_mpi="${MPIRUN:-mpirun} is not there"
elif ! timeout 60 "${MPIRUN:-mpirun}" -np 2 true >/dev/null 2>&1; then
    no_mpi="${MPIRUN:-mpirun} starts nothing here"
fi

ranks() { # how many, command...
    how_many=$1
    shift
    timeout -k 10 300 "${MPIRUN:-mpirun}" -np "$how_many" "$@"
}
