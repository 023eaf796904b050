/*
 * steps_verify: compares all that a run has left with its checksums. It need not know the model: a
 * bank is one range of the store, so one extent with two generations stands for all of them.
 */
#include "build-config.h"

#include "aio/steps_private.h"

#include <stdio.h>
#include <stdlib.h>

/* Takes the layout and the length of a payload from the commit area's header. */
static int read_header(struct zinf_steps *s, struct zinf_commit_options *options)
{
    struct commit_header header;
    void *blocks = NULL;
    if (posix_memalign(&blocks, COMMIT_BLOCK, COMMIT_COPIES * COMMIT_BLOCK))
        return zinf_fail(-ENOMEM, "no memory for a block");
    int code = options->io.read(s, 0, blocks, COMMIT_COPIES * COMMIT_BLOCK);
    const void *block = code ? NULL : commit_header(blocks);
    if (block) {
        memcpy(&header, block, sizeof header);
        options->layout = header.layout;
        options->payload_bytes = header.payload_bytes;
    }
    if (!code)
        code = commit_header_check(blocks, options);
    if (!code && zinf_aio_file_bytes(s->area) != zinf_commit_area_bytes(options))
        code = zinf_fail(-EBADMSG, "%s has another length than its steps need", s->area->path);
    free(blocks);
    return code;
}

static void take(struct zinf_steps_verdict *v, const struct zinf_commit *c)
{
    const void *payload = zinf_commit_payload(c, &v->payload_bytes);
    v->commits = zinf_commit_epoch(c) + 1;
    if (v->payload_bytes > sizeof v->payload)
        v->payload_bytes = 0;
    memcpy(v->payload, payload, v->payload_bytes);
}

/* Fills in the verdict. Damage is part of it; other errors are returned. */
static int judge(struct zinf_steps_verdict *v, struct zinf_steps *s, bool repair)
{
    struct zinf_commit_options options = steps_commit_options(s);
    int code = read_header(s, &options);
    if (!code)
        code = zinf_commit_recover(&s->commit, &options);
    v->none = code == -ENOENT;
    v->newest = v->kept = v->none ? 0 : code;
    if (code)
        snprintf(v->problem, sizeof v->problem, "%s", zinf_error());
    if (code == -EBADMSG || code == -EIO)
        v->kept = repair ? zinf_commit_give_up(&s->commit, &options)
                         : zinf_commit_survey(&s->commit, &options);
    if (!v->kept && !v->none)
        take(v, s->commit);
    if (!v->kept && repair)
        return zinf_store_mark_again(s->store);
    return 0;
}

int zinf_steps_verify(struct zinf_steps_verdict *verdict, const char *const *paths, int n_paths,
                      const uint8_t run[16], bool repair)
{
    struct zinf_store_options options = {.paths = paths,
                                         .n_paths = n_paths,
                                         .label = "verify",
                                         .checksums = true,
                                         .allow_memory_fs = true,
                                         .run = run,
                                         .as_found = true};
    struct zinf_store *store = NULL;
    struct zinf_steps *steps = NULL;
    memset(verdict, 0, sizeof *verdict);
    int code = zinf_store_create(&store, &options);
    if (code == -ENOENT && strstr(zinf_error(), "no step")) {
        verdict->none = true;
        return 0;
    }
    if (!code)
        code = zinf_store_allocate(store);
    if (!code && !(steps = calloc(1, sizeof *steps)))
        code = zinf_fail(-ENOMEM, "no memory for the steps of a store");
    if (!code) {
        steps->store = store;
        verdict->bytes = store->bank_bytes;
        code = steps_open_area(steps, false);
    }
    if (!code)
        code = judge(verdict, steps, repair);
    zinf_steps_close(steps);
    zinf_store_destroy(store);
    return code;
}
