/*
 * ports: one where processes of a test meet, as tests/support/ports.sh has them for scripts: 100
 * that are this process's and its children's while they live. Tests that run at the same time have
 * other ones, and the system gives none of them away by itself.
 */
#ifndef ZINF_TESTS_PORTS_H
#define ZINF_TESTS_PORTS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

enum { PORT_BLOCKS = 120, PORTS_OF_A_BLOCK = 100 };

/* Whether nobody had it. The lock is on an open file and goes with the last process that has it. */
static inline bool take_port_block(int block)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/zinf-ports-%d", block);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CREAT, 0644);
    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
        return true;
    if (fd >= 0)
        close(fd);
    return false;
}

/* Another one at each call, and the one behind it is free too. */
static inline uint32_t take_port(void)
{
    static int block = -1, taken;
    int tries = 0;
    for (int n = (int)getpid() % PORT_BLOCKS; block < 0; n = (n + 1) % PORT_BLOCKS)
        if (take_port_block(n) || ++tries > PORT_BLOCKS)
            block = n;
    taken = (taken + 2) % PORTS_OF_A_BLOCK;
    return (uint32_t)(20000 + block * PORTS_OF_A_BLOCK + taken);
}

#endif
