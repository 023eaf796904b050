/*
 * run_name: the file run-id of an output folder. It says by which name this folder's runs find
 * their steps on the drives, which folder that is (a copy of it is another run's), and whether
 * steps were committed there: then, if they are not found, something is lost, and a run must not
 * begin anew over it. The text ends with its checksum.
 */
#include "train/run/run.h"
#include "train/checkpoints.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define NAME_FILE "run-id"
#define MAX_BYTES 65536
#define FIRST_FORMAT_BYTES 33 /* the name and a line end */

/* What tells a folder from its copies, and stays when it is renamed or the machine restarts. */
static void identify(const char *output, uint64_t identity[2])
{
    struct statx info;
    identity[0] = identity[1] = 0;
    if (statx(AT_FDCWD, output, 0, STATX_INO | STATX_BTIME, &info))
        return;
    identity[0] = info.stx_ino;
    if (info.stx_mask & STATX_BTIME)
        identity[1] = (uint64_t)info.stx_btime.tv_sec;
}

static bool parse_id(const char *text, uint8_t id[16])
{
    if (strspn(text, "0123456789abcdef") != 32)
        return false;
    for (int i = 0; i < 16; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        id[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return true;
}

static int fail_damaged(const char *path)
{
    return zinf_fail(
        -EBADMSG,
        "%s is damaged, so this run's steps on the drives cannot be told from those "
        "of others: put it back, continue from a checkpoint with --resume=DIR, or choose "
        "another --output",
        path);
}

/* "NAME\nfolder INODE BIRTH\n[ranks N\n][steps PATH\n]sum SUM\n" */
static int parse(struct run_name *name, const char *path, char *text, size_t bytes)
{
    char *sum = strstr(text, "sum "), *folder = text + FIRST_FORMAT_BYTES, *end;
    if (!parse_id(text, name->id) || text[32] != '\n')
        return fail_damaged(path);
    if (bytes == FIRST_FORMAT_BYTES) /* it says no more */
        return 0;
    if (!sum || strtoull(sum + 4, &end, 16) != XXH3_64bits(text, (size_t)(sum - text)) ||
        strcmp(end, "\n") ||
        sscanf(folder, "folder %" SCNu64 " %" SCNu64 "\n", &name->identity[0],
               &name->identity[1]) != 2)
        return fail_damaged(path);
    char *ranks = strstr(folder, "\nranks ");
    char *steps = strstr(folder, "\nsteps ");
    if (!steps || steps > sum)
        return 0;
    if (ranks && ranks < steps)
        name->ranks = (uint32_t)strtoul(ranks + strlen("\nranks "), NULL, 10);
    steps += strlen("\nsteps ");
    name->steps = strndup(steps, strcspn(steps, "\n"));
    return name->steps ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
}

int run_name_read(struct run_name *name, const char *output)
{
    char *path = zinf_path_join(output, NAME_FILE), *text = NULL;
    uint64_t here[2];
    size_t bytes = 0;
    *name = (struct run_name){.ranks = 1};
    int code = path ? zinf_file_read(path, MAX_BYTES, &text, &bytes) : -ENOMEM;
    if (code == -EFBIG || (!code && (bytes < FIRST_FORMAT_BYTES || strlen(text) != bytes)))
        code = fail_damaged(path);
    else if (!code)
        code = parse(name, path, text, bytes);
    identify(output, here);
    name->found = !code;
    name->copied = !code && name->identity[0] && memcmp(here, name->identity, sizeof here) != 0;
    free(text);
    free(path);
    return code == -ENOENT ? 0 : code;
}

static int write_name(const struct run_name *name, const char *output)
{
    char *path = zinf_path_join(output, NAME_FILE), *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int code = path && out ? 0 : zinf_fail(-ENOMEM, "no memory for the name of a run");
    for (int i = 0; out && i < 16; i++)
        fprintf(out, "%02x", name->id[i]);
    if (out) {
        fprintf(out, "\nfolder %" PRIu64 " %" PRIu64 "\n", name->identity[0], name->identity[1]);
        if (name->steps && name->ranks != 1)
            fprintf(out, "ranks %u\n", name->ranks);
        if (name->steps)
            fprintf(out, "steps %s\n", name->steps);
        fflush(out);
        fprintf(out, "sum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, bytes));
        fclose(out);
    }
    if (!code)
        code = zinf_file_write_atomic(path, text, bytes);
    if (!code)
        code = zinf_folder_sync(output);
    free(text);
    free(path);
    return code;
}

int run_name_make(struct run_name *name, const char *output)
{
    run_name_free(name);
    name->ranks = 1;
    if (getrandom(name->id, sizeof name->id, 0) != (ssize_t)sizeof name->id)
        return zinf_fail(-EIO, "no random numbers to name a run");
    identify(output, name->identity);
    name->found = true;
    return write_name(name, output);
}

int run_name_mark(struct run_name *name, const char *output, const char *steps, uint32_t ranks)
{
    if (!name->steps == !steps && (!steps || (!strcmp(name->steps, steps) && name->ranks == ranks)))
        return 0;
    if (steps && strchr(steps, '\n'))
        return zinf_fail(-EINVAL, "nvme_path \"%s\" has a line end in it", steps);
    char *copy = steps ? strdup(steps) : NULL;
    if (steps && !copy)
        return zinf_fail(-ENOMEM, "no memory for a path");
    free(name->steps);
    name->steps = copy;
    name->ranks = ranks;
    identify(output, name->identity);
    return write_name(name, output);
}

void run_name_free(struct run_name *name)
{
    free(name->steps);
    *name = (struct run_name){0};
}

int zinf_run_id(const char *output, uint8_t id[16])
{
    struct run_name name;
    int code = run_name_read(&name, output);
    if (!code && !name.found)
        code = zinf_fail(-ENOENT, "%s has no run-id", output);
    memcpy(id, name.id, sizeof name.id);
    run_name_free(&name);
    return code;
}

int zinf_run_steps(const char *output, char **path)
{
    struct run_name name;
    int code = run_name_read(&name, output);
    *path = name.steps;
    name.steps = NULL;
    run_name_free(&name);
    return code;
}

/* ---- ranks ---- */

#define COMMON_BYTES 12 /* of the names of a run's ranks; then number and count, 16 bits each */

void run_name_of_rank(const uint8_t id[16], uint32_t rank, uint32_t world, uint8_t out[16])
{
    const uint16_t numbers[2] = {(uint16_t)rank, (uint16_t)world};
    memcpy(out, id, 16);
    if (world > 1)
        memcpy(out + COMMON_BYTES, numbers, sizeof numbers);
}

bool zinf_run_id_rank(const uint8_t id[16], const uint8_t found[16], uint32_t *rank,
                      uint32_t *world)
{
    uint16_t numbers[2];
    bool alone = !memcmp(id, found, 16);
    memcpy(numbers, found + COMMON_BYTES, sizeof numbers);
    *rank = alone ? 0 : numbers[0];
    *world = alone ? 1 : numbers[1];
    return alone || (!memcmp(id, found, COMMON_BYTES) && numbers[1] > 1 && numbers[0] < numbers[1]);
}
