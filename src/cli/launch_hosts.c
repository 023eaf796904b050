/* launch_hosts: hostfiles and filters. A filter's word is a host, or a host with numbers of its
 * slots behind a colon; words are parted by @. */
#include "cli/launch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t all_slots(uint32_t n)
{
    return n == LAUNCH_MOST_SLOTS ? UINT64_MAX : ((uint64_t)1 << n) - 1;
}

static struct launch_host *find(const struct launch_hosts *hosts, const char *name, size_t length)
{
    for (uint32_t i = 0; i < hosts->n; i++)
        if (strlen(hosts->at[i].name) == length && !memcmp(hosts->at[i].name, name, length))
            return &hosts->at[i];
    return NULL;
}

/* What begins with a dash would be an option of mpirun's or of ssh's, and a comma or a colon part
 * hosts there. */
static bool is_name(const char *name)
{
    if (!*name || *name == '-' || strlen(name) >= sizeof((struct launch_host *)0)->name)
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("-._", *name))
            return false;
    return true;
}

static int add(struct launch_hosts *hosts, const char *name, uint32_t n_slots)
{
    struct launch_host *at = realloc(hosts->at, (hosts->n + 1) * sizeof *at);
    if (!at)
        return zinf_fail(-ENOMEM, "no memory for %u hosts", hosts->n + 1);
    hosts->at = at;
    at[hosts->n] = (struct launch_host){.n_slots = n_slots, .used = all_slots(n_slots)};
    snprintf(at[hosts->n].name, sizeof at->name, "%s", name);
    hosts->n++;
    return 0;
}

/* "NAME slots=N", or nothing but a comment. */
static int read_line(struct launch_hosts *hosts, char *line, const char *path, int number)
{
    char *words = NULL, *end = NULL;
    line[strcspn(line, "#")] = 0;
    char *name = strtok_r(line, " \t\r\n", &words), *slots = strtok_r(NULL, " \t\r\n", &words);
    if (!name)
        return 0;
    bool good = slots && !strncmp(slots, "slots=", 6) && isdigit((unsigned char)slots[6]);
    unsigned long n = good ? strtoul(slots + 6, &end, 10) : 0;
    if (!good || *end || strtok_r(NULL, " \t\r\n", &words) || !is_name(name))
        return zinf_fail(-EINVAL, "%s, line %d: a host is written as NAME slots=N", path, number);
    if (!n || n > LAUNCH_MOST_SLOTS)
        return zinf_fail(-EINVAL, "%s, line %d: %s has 1 to %d slots, not %lu", path, number, name,
                         LAUNCH_MOST_SLOTS, n);
    if (find(hosts, name, strlen(name)))
        return zinf_fail(-EINVAL, "%s, line %d: %s is there already", path, number, name);
    return add(hosts, name, (uint32_t)n);
}

int launch_read_hosts(struct launch_hosts *out, const char *path)
{
    char *text = NULL, *line = NULL, *lines = NULL;
    size_t bytes = 0;
    *out = (struct launch_hosts){0};
    int number = 0, code = zinf_file_read(path, 1u << 20, &text, &bytes);
    if (!code)
        lines = text;
    while (!code && (line = strsep(&lines, "\n")))
        code = read_line(out, line, path, ++number);
    if (!code && !out->n)
        code = zinf_fail(-EINVAL, "%s has no host: a line is NAME slots=N", path);
    free(text);
    if (code)
        launch_free_hosts(out);
    return code;
}

int launch_this_host(struct launch_hosts *out, uint32_t n_slots)
{
    *out = (struct launch_hosts){0};
    return add(out, "localhost", n_slots);
}

void launch_free_hosts(struct launch_hosts *hosts)
{
    free(hosts->at);
    *hosts = (struct launch_hosts){0};
}

/* ---- filters ---- */

static int fail_word(const char *option, const char *word, size_t length, const char *what)
{
    return zinf_fail(-EINVAL, "%s: '%.*s' %s", option, (int)length, word, what);
}

/* The slots of one word, as bits of its host's. */
static int read_word(const struct launch_hosts *hosts, const char *option, const char *word,
                     size_t length, uint64_t *mask)
{
    const char *colon = memchr(word, ':', length), *end = word + length;
    size_t name = colon ? (size_t)(colon - word) : length;
    struct launch_host *host = find(hosts, word, name);
    if (!host)
        return fail_word(option, word, name, "is not one of the hosts");
    *mask = colon ? 0 : all_slots(host->n_slots);
    for (const char *at = colon ? colon + 1 : end; at < end || (colon && !*mask);) {
        char *behind = NULL;
        if (at >= end || !isdigit((unsigned char)*at))
            return fail_word(option, word, length, "is no HOST or HOST:NUMBER,NUMBER");
        unsigned long slot = strtoul(at, &behind, 10);
        if (slot >= host->n_slots)
            return fail_word(option, word, length, "names a slot that the host does not have");
        *mask |= (uint64_t)1 << slot;
        at = behind;
        if (at < end && (*at != ',' || ++at == end))
            return fail_word(option, word, length, "is no HOST or HOST:NUMBER,NUMBER");
    }
    return 0;
}

static int filter(struct launch_hosts *hosts, const char *option, const char *text, bool keeps)
{
    uint64_t *masks = calloc(hosts->n, sizeof *masks), mask = 0;
    int code = masks ? 0 : zinf_fail(-ENOMEM, "no memory for %u hosts", hosts->n);
    for (const char *word = text; !code && word;) {
        size_t length = strcspn(word, "@");
        code = read_word(hosts, option, word, length, &mask);
        if (!code)
            masks[find(hosts, word, strcspn(word, ":@")) - hosts->at] |= mask;
        word = word[length] ? word + length + 1 : NULL;
    }
    for (uint32_t i = 0; !code && i < hosts->n; i++)
        hosts->at[i].used &= keeps ? masks[i] : ~masks[i];
    free(masks);
    return code;
}

int launch_choose(struct launch_hosts *hosts, const struct launch_choice *choice)
{
    uint32_t left = 0;
    int code = 0;
    if (choice->n_hosts > hosts->n)
        return zinf_fail(-EINVAL, "--num-nodes %u, but there are %u hosts", choice->n_hosts,
                         hosts->n);
    for (uint32_t i = 0; i < hosts->n; i++) {
        struct launch_host *host = &hosts->at[i];
        bool used = !choice->n_hosts || i < choice->n_hosts;
        if (used && choice->n_slots > host->n_slots)
            return zinf_fail(-EINVAL, "--num-gpus %u, but %s has %u slots", choice->n_slots,
                             host->name, host->n_slots);
        host->used = used ? all_slots(choice->n_slots ? choice->n_slots : host->n_slots) : 0;
    }
    if (choice->include)
        code = filter(hosts, "--include", choice->include, true);
    if (!code && choice->exclude)
        code = filter(hosts, "--exclude", choice->exclude, false);
    for (uint32_t i = 0; !code && i < hosts->n; i++)
        left += launch_count(&hosts->at[i]);
    return !code && !left ? zinf_fail(-EINVAL, "no slot of any host is left to start a rank on")
                          : code;
}

uint32_t launch_count(const struct launch_host *host)
{
    return (uint32_t)__builtin_popcountll(host->used);
}

bool launch_uses_all(const struct launch_host *host)
{
    return host->used == all_slots(host->n_slots);
}
