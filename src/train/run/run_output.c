/*
 * run_output: nothing of another run is destroyed. A folder that holds a model, a log or
 * checkpoints is only written by the run that goes on from them, or after --overwrite has said what
 * goes.
 */
#include "train/save/output.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What another run left. */
struct found {
    char *model, *log; /* paths, on the heap */
    bool has_model, has_log;
    uint64_t *steps; /* of checkpoints, ascending */
    uint32_t n_steps;
};

static bool is_filled_file(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISREG(info.st_mode) && info.st_size > 0;
}

static int look(const struct zinf_run_options *o, struct found *found)
{
    *found = (struct found){.model = zinf_path_join(o->output, "model")};
    found->log = o->log_path ? strdup(o->log_path) : zinf_path_join(o->output, "log.jsonl");
    int code = found->model && found->log
                   ? output_checkpoints(o->output, &found->steps, &found->n_steps)
                   : zinf_fail(-ENOMEM, "no memory for paths");
    found->has_model = !code && !access(found->model, F_OK);
    found->has_log = !code && is_filled_file(found->log);
    return code;
}

static void found_fini(struct found *found)
{
    free(found->model);
    free(found->log);
    free(found->steps);
}

/* Whether path is folder or lies in it. */
static bool lies_in(const char *path, const char *folder)
{
    char *inner = realpath(path, NULL), *outer = realpath(folder, NULL);
    size_t n = outer ? strlen(outer) : 0;
    bool yes = inner && outer && !strncmp(inner, outer, n) && (inner[n] == '/' || !inner[n]);
    free(inner);
    free(outer);
    return yes;
}

static int refuse(const struct zinf_run_options *o, const struct found *found)
{
    const char *output = o->output;
    if (found->n_steps)
        return zinf_fail(
            -EEXIST,
            "--output %s holds checkpoints of an earlier run, up to checkpoint-%" PRIu64
            ": go on from them with --resume, choose another --output, or pass "
            "--overwrite",
            output, found->steps[found->n_steps - 1]);
    if (found->has_model)
        return zinf_fail(-EEXIST,
                         "--output %s holds the model of an earlier run%s: choose another --output "
                         "(--model %s trains it further), or pass --overwrite",
                         output, o->resume_steps ? " and no checkpoint to go on from" : "",
                         found->model);
    return zinf_fail(-EEXIST,
                     "%s is the log of an earlier run: choose another %s, or pass --overwrite",
                     found->log, o->log_path ? "--log" : "--output");
}

int run_guard_output(const struct run *run)
{
    const struct zinf_run_options *o = run->options;
    struct found found;
    int code = look(o, &found);
    bool continues = o->resume && lies_in(o->resume, o->output);
    bool log_is_in_the_way = found.has_log && (!o->resume_steps || o->log_path);
    if (!code && !continues && !o->overwrite &&
        (found.n_steps || found.has_model || log_is_in_the_way))
        code = refuse(o, &found);
    if (!code && !continues && o->overwrite && found.has_model &&
        lies_in(o->trainer.model_path, o->output))
        code = zinf_fail(-EINVAL, "--overwrite would remove --model %s: choose another --output",
                         o->trainer.model_path);
    found_fini(&found);
    return code;
}

static void say_removed(const struct zinf_run_options *o, const struct found *found)
{
    char checkpoints[64] = "";
    if (found->n_steps)
        snprintf(checkpoints, sizeof checkpoints, ", %" PRIu32 " checkpoint%s up to step %" PRIu64,
                 found->n_steps, found->n_steps == 1 ? "" : "s", found->steps[found->n_steps - 1]);
    zinf_log(ZINF_LOG_INFO, "--overwrite: of an earlier run in %s these go:%s%s%s%s", o->output,
             found->has_model ? " model/" : "", found->has_model && found->has_log ? "," : "",
             found->has_log ? " its log" : "",
             *checkpoints && !found->has_model && !found->has_log ? checkpoints + 1 : checkpoints);
}

static int overwrite(const struct zinf_run_options *o, const struct found *found)
{
    char *latest = zinf_path_join(o->output, "latest"), *best = zinf_path_join(o->output, "best");
    if (!latest || !best) {
        free(latest);
        free(best);
        return -ENOMEM;
    }
    if (found->has_model || found->has_log || found->n_steps)
        say_removed(o, found);
    unlink(latest);
    output_remove(best);
    for (uint32_t i = 0; i < found->n_steps; i++) {
        char *path = output_checkpoint_path(o->output, "", found->steps[i]);
        if (path)
            output_remove(path);
        free(path);
    }
    if (found->has_model)
        output_remove(found->model);
    if (found->has_log)
        unlink(found->log);
    free(latest);
    free(best);
    return 0;
}

/* Its steps are lost, but not what they were. */
static int put_aside(const struct found *found)
{
    size_t bytes = strlen(found->log) + 16;
    char *aside = malloc(bytes);
    int code = aside ? 0 : zinf_fail(-ENOMEM, "no memory for a path");
    for (int i = 1; !code && i < 1000; i++) {
        snprintf(aside, bytes, "%s.%d", found->log, i);
        if (!access(aside, F_OK))
            continue;
        if (rename(found->log, aside))
            code =
                zinf_fail(-errno, "cannot rename %s to %s: %s", found->log, aside, strerror(errno));
        else
            zinf_log(ZINF_LOG_INFO, "the log of steps that no checkpoint has is kept as %s", aside);
        break;
    }
    free(aside);
    return code;
}

int run_clear_output(const struct run *run)
{
    const struct zinf_run_options *o = run->options;
    struct found found;
    if (run->recovers || (o->resume && lies_in(o->resume, o->output)))
        return 0;
    int code = look(o, &found);
    if (!code && o->overwrite)
        code = overwrite(o, &found);
    else if (!code && o->resume_steps && found.has_log)
        code = put_aside(&found);
    found_fini(&found);
    return code;
}
