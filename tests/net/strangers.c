/*
 * strangers PORT N: N callers of the loopback's port that are no ranks: silent ones, ones that send
 * garbage, ones that say something byte by byte. They call again when they are sent away, until
 * they are ended.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 200 };

static int call(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void say(int fd, int kind)
{
    char words[256];
    memset(words, kind == 1 ? 'G' : 0x7a, sizeof words);
    ssize_t n =
        kind ? send(fd, words, kind == 1 ? sizeof words : 1, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    (void)n; /* who is sent away is seen below */
}

int main(int argc, char **argv)
{
    int fds[MOST], n = argc > 2 ? atoi(argv[2]) : 0;
    uint16_t port = (uint16_t)(argc > 1 ? atoi(argv[1]) : 0);
    for (int i = 0; i < MOST; i++)
        fds[i] = -1;
    for (;; usleep(10000))
        for (int i = 0; i < n && i < MOST; i++) {
            char byte;
            bool gone = fds[i] >= 0 && recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
            if (gone || (fds[i] >= 0 && errno == ECONNRESET)) {
                close(fds[i]);
                fds[i] = -1;
            }
            errno = 0;
            if (fds[i] < 0)
                fds[i] = call(port);
            if (fds[i] >= 0)
                say(fds[i], i % 3);
        }
}
