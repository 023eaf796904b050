/*
 * run_output: nothing of another run is destroyed. A folder that holds a model, a log or
 * checkpoints is only written by the run that goes on from them, or after --overwrite has said what
 * goes.
 */
#include "base/apart.h"
#include "train/save/output.h"
#include "train/run/run.h"
#include "train/save/save.h"

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

/* A model or adapter that a run goes on from without another being named. */
static bool lies_in_checkpoint(const struct zinf_run_options *o, const char *path)
{
    return o->resume && lies_in(path, o->resume);
}

static int refuse(const struct zinf_run_options *o, const struct found *found)
{
    const char *output = o->output;
    if (found->n_steps)
        return zinf_fail(
            -EEXIST,
            "--output %s holds checkpoints of an earlier run, up to checkpoint-%" PRIu64
            ": continue from them with --resume, choose another --output, or pass "
            "--overwrite",
            output, found->steps[found->n_steps - 1]);
    if (found->has_model)
        return zinf_fail(-EEXIST,
                         "--output %s holds the model of an earlier run%s: choose another --output "
                         "(--model %s trains it further), or pass --overwrite",
                         output, o->resume_steps ? " and no checkpoint to continue from" : "",
                         found->model);
    return zinf_fail(-EEXIST,
                     "%s is the log of an earlier run: choose another %s, or pass --overwrite",
                     found->log, o->log_path ? "--log" : "--output");
}

/* What this program never wrote it does not remove: every run leaves its resolved configuration. */
static int check_is_run(const struct zinf_run_options *o, const struct found *found)
{
    char *resolved = zinf_path_join(o->output, "config.resolved.json");
    char *checkpoint =
        found->n_steps ? output_checkpoint_path(o->output, "", found->steps[0]) : NULL;
    int code = resolved ? 0 : -ENOMEM;
    if (!code && access(resolved, F_OK))
        code = zinf_fail(-EINVAL,
                         "--overwrite would remove %s, but %s was never the --output of a training "
                         "(it has no config.resolved.json): choose another --output, or remove it "
                         "yourself",
                         found->has_model ? found->model : checkpoint, o->output);
    free(checkpoint);
    free(resolved);
    return code;
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
    if (!code && !continues && o->overwrite && (found.has_model || found.n_steps))
        code = check_is_run(o, &found);
    found_fini(&found);
    return code;
}

/* ---- what is read ---- */

/* What is replaced or removed as a whole. A run reads its own checkpoints as --model. */
static int check_folders(const struct zinf_run_options *o, const struct zinf_origins *origins)
{
    static const char *const names[] = {"model", "model.partial", "best", "tmp-best"};
    int code = 0;
    for (size_t i = 0; !code && i < sizeof names / sizeof *names; i++) {
        char *path = zinf_path_join(o->output, names[i]);
        code = path ? zinf_apart_check("--output", path, ZINF_WRITTEN_WHOLE, origins) : -ENOMEM;
        free(path);
    }
    return code;
}

static int check_checkpoints(const struct zinf_run_options *o, const struct zinf_origins *origins)
{
    uint64_t *steps;
    uint32_t n;
    int code = output_checkpoints(o->output, &steps, &n);
    for (uint32_t i = 0; !code && i < n; i++) {
        char *path = output_checkpoint_path(o->output, "", steps[i]);
        code = path ? zinf_apart_check("--output", path, ZINF_WRITTEN_WHOLE, origins) : -ENOMEM;
        free(path);
    }
    free(steps);
    return code;
}

static int check_files(const struct zinf_run_options *o, const struct zinf_origins *origins)
{
    static const char *const names[] = {"log.jsonl", "ledger.txt",  "latest",
                                        "run-id",    "inputs.json", PRODUCTS_FILE};
    const char *trace = o->trainer.config->trace;
    int code = zinf_apart_check("--log", o->log_path, ZINF_WRITTEN_FILE, origins);
    if (!code)
        code = zinf_apart_check("zinf.trace", trace, ZINF_WRITTEN_FILE, origins);
    for (size_t i = 0; !code && i < sizeof names / sizeof *names; i++) {
        char *path = zinf_path_join(o->output, names[i]);
        code = path ? zinf_apart_check("--output", path, ZINF_WRITTEN_FILE, origins) : -ENOMEM;
        free(path);
    }
    return code;
}

int run_check_origins(const struct run *run)
{
    const struct zinf_run_options *o = run->options;
    const struct zinf_origins *given = o->origins;
    struct zinf_origins fixed = {NULL, 0}; /* those that are not the run's own checkpoint */
    int code = 0;
    for (int i = 0; given && !code && i < given->n; i++)
        if (!given->items[i].path || o->overwrite || !lies_in_checkpoint(o, given->items[i].path))
            code = zinf_origins_add(&fixed, given->items[i].option, given->items[i].path);
    if (!code) /* itself, not what lies in it */
        code = zinf_apart_check("--output", o->output, ZINF_WRITTEN_FILE, &fixed);
    if (!code)
        code = check_folders(o, &fixed);
    if (!code)
        code = check_checkpoints(o, &fixed);
    if (!code)
        code = check_files(o, &fixed);
    zinf_origins_free(&fixed);
    return code;
}

/* ---- clearing ---- */

static void say_removed(const struct zinf_run_options *o, const struct found *found)
{
    char checkpoints[64] = "";
    if (found->n_steps)
        snprintf(checkpoints, sizeof checkpoints, ", %" PRIu32 " checkpoint%s up to step %" PRIu64,
                 found->n_steps, found->n_steps == 1 ? "" : "s", found->steps[found->n_steps - 1]);
    zinf_log(ZINF_LOG_INFO, "--overwrite removes what an earlier run left in %s:%s%s%s%s",
             o->output, found->has_model ? " model/" : "",
             found->has_model && found->has_log ? "," : "", found->has_log ? " its log" : "",
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
