/*
 * restricted: runs a command as containers do. `restricted uring COMMAND...` denies the system
 * calls of io_uring with EPERM; `restricted memlock COMMAND...` limits locked memory to 64 KiB,
 * also for root. Exits with 77 where that cannot be had.
 */
#include "build-config.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool deny_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Root gets its capabilities back at exec unless they are taken from the bounding set too. */
static bool limit_memlock(void)
{
    struct rlimit low = {65536, 65536};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (setrlimit(RLIMIT_MEMLOCK, &low) || syscall(SYS_capget, &header, data))
        return false;
    if (!(data[0].permitted & (1u << CAP_IPC_LOCK)))
        return true;
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    data[0].permitted &= ~(1u << CAP_IPC_LOCK);
    data[0].inheritable &= ~(1u << CAP_IPC_LOCK);
    return !prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) && !syscall(SYS_capset, &header, data);
}

int main(int argc, char **argv)
{
    if (argc < 3 || (strcmp(argv[1], "uring") && strcmp(argv[1], "memlock"))) {
        fputs("usage: restricted uring|memlock COMMAND...\n", stderr);
        return 2;
    }
    if (!(*argv[1] == 'u' ? deny_uring() : limit_memlock()))
        return 77;
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
