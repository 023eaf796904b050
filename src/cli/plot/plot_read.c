/* plot_read: what a run wrote, as arrays. A log may be one that is still being written: a last line
 * that is not whole is left out. */
#include "cli/plot/plot.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

const char *const plot_lanes[PLOT_LANES] = {"read", "write", "h2d", "d2h", "device", "host"};

static double number(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : cJSON_IsTrue(value) ? 1 : NAN;
}

static void add_stalls(struct plot_run *run, const cJSON *line)
{
    const cJSON *stalls = cJSON_GetObjectItemCaseSensitive(line, "stall_seconds");
    for (int i = 0; i < PLOT_LANES; i++) {
        const cJSON *of = cJSON_GetObjectItemCaseSensitive(stalls, plot_lanes[i]);
        for (int j = 0; of && j < PLOT_LANES; j++) {
            double seconds = number(of, plot_lanes[j]);
            run->stalls[i][j] += isfinite(seconds) ? seconds : 0;
        }
    }
}

/* ---- evaluations ---- */

static int grow_sets(struct plot_run *run, size_t capacity)
{
    const size_t more = capacity ? 2 * capacity : 1024;
    for (int i = 0; run->n == capacity && i < run->n_sets; i++) {
        double *grown = realloc(run->sets[i].loss, more * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %zu steps of %s", more, run->name);
        run->sets[i].loss = grown;
    }
    for (int i = 0; i < run->n_sets; i++)
        run->sets[i].loss[run->n] = NAN;
    return 0;
}

/* Begins when an evaluation by it comes for the first time. */
static struct plot_set *set_of(struct plot_run *run, const char *name, size_t n, size_t capacity)
{
    for (int i = 0; i < run->n_sets; i++)
        if (strlen(run->sets[i].name) == n && !strncmp(run->sets[i].name, name, n))
            return &run->sets[i];
    struct plot_set *set = &run->sets[run->n_sets];
    if (run->n_sets == PLOT_MAX_SETS || n >= sizeof set->name)
        return NULL;
    set->loss = malloc((run->n == capacity ? (capacity ? 2 * capacity : 1024) : capacity) *
                       sizeof *set->loss);
    if (!set->loss)
        return NULL;
    for (size_t i = 0; i <= run->n; i++)
        set->loss[i] = NAN;
    memcpy(set->name, name, n);
    run->n_sets++;
    return set;
}

/* "eval_loss", "eval_NAME_loss" */
static void take_loss(struct plot_run *run, const cJSON *member, size_t capacity)
{
    const char *key = member->string;
    const size_t n = strlen(key);
    const bool named = n > 10 && !strncmp(key, "eval_", 5) && !strcmp(key + n - 5, "_loss");
    if (!cJSON_IsNumber(member) || (!named && strcmp(key, "eval_loss")))
        return;
    struct plot_set *set = set_of(run, key + 5, named ? n - 10 : 0, capacity);
    if (set)
        set->loss[run->n] = member->valuedouble;
}

const char *plot_set_key(const struct plot_set *set, const char *prefix,
                         char out[ZINF_MOST_SET_NAME + 16])
{
    snprintf(out, ZINF_MOST_SET_NAME + 16, "%s%s%sloss", prefix, set->name, *set->name ? "_" : "");
    return out;
}

static int take_line(struct plot_run *run, const cJSON *line, size_t capacity)
{
    static const char *const keys[PLOT_LANE] = {"step",
                                                "loss",
                                                "grad_norm",
                                                "lr",
                                                "tokens",
                                                "step_seconds",
                                                "predicted_seconds",
                                                "skipped",
                                                "drive_bytes_read",
                                                "drive_bytes_written"};
    const cJSON *lanes = cJSON_GetObjectItemCaseSensitive(line, "lane_seconds");
    for (int i = 0; i < PLOT_COLUMNS; i++) {
        if (run->n == capacity) {
            size_t more = capacity ? 2 * capacity : 1024;
            double *grown = realloc(run->columns[i], more * sizeof *grown);
            if (!grown)
                return zinf_fail(-ENOMEM, "no memory for %zu steps of %s", more, run->name);
            run->columns[i] = grown;
        }
        run->columns[i][run->n] =
            i < PLOT_LANE ? number(line, keys[i]) : number(lanes, plot_lanes[i - PLOT_LANE]);
    }
    add_stalls(run, line);
    int code = grow_sets(run, capacity);
    const cJSON *member;
    if (!code)
        cJSON_ArrayForEach(member, line) take_loss(run, member, capacity);
    run->n += !code;
    return code;
}

static int read_log(struct plot_run *run, const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0, capacity = 0;
    int code = 0;
    if (!file)
        return zinf_fail(-errno,
                         "cannot read the log %s: %s; name the --output folder of a training", path,
                         strerror(errno));
    for (long at = 1; !code && getline(&line, &room, file) > 0; at++) {
        cJSON *json = cJSON_Parse(line);
        if (!cJSON_IsObject(json) || !cJSON_HasObjectItem(json, "step")) {
            if (strchr(line, '\n'))
                code = zinf_fail(-EINVAL, "%s: line %ld is not one of zinf train", path, at);
        } else {
            code = take_line(run, json, capacity);
            capacity = run->n > capacity ? (capacity ? 2 * capacity : 1024) : capacity;
        }
        cJSON_Delete(json);
    }
    if (!code && !run->n)
        code = zinf_fail(-EINVAL, "%s has no step yet", path);
    free(line);
    fclose(file);
    return code;
}

/* For a line that says where clipping begins; an older or foreign file is no reason to fail. */
static void read_config(struct plot_run *run, const char *folder)
{
    char *path = zinf_path_join(folder, "config.resolved.json");
    cJSON *config = NULL;
    if (path && !zinf_json_read_file(path, MAX_CONFIG_BYTES, ZINF_JSON_STRICT, &config)) {
        run->clip = fmax(0, number(config, "gradient_clipping")); /* fmax leaves NaN out */
        run->batch = fmax(0, number(config, "train_batch_size"));
        run->micro_batch = fmax(0, number(config, "train_micro_batch_size_per_gpu"));
    }
    cJSON_Delete(config);
    free(path);
}

/* "  device parameters                528.00 KiB  offload_param.device" */
static void take_memory(struct plot_run *run, char *line)
{
    static const char *const tiers[] = {"device", "host", "drive"};
    struct plot_memory *memory = &run->memory[run->n_memory];
    char tier[8], *unit;
    int begin = 0;
    if (run->n_memory == PLOT_MAX_LINES || sscanf(line, " %7s %n", tier, &begin) != 1 || !begin)
        return;
    for (memory->tier = 0; memory->tier < 3 && strcmp(tier, tiers[memory->tier]); memory->tier++)
        ;
    /* The size is a number, a space and a unit, behind two spaces at least or a long name. */
    for (unit = line + begin; *unit; unit++) {
        static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
        for (int i = 0; i < 5; i++) {
            size_t n = strlen(units[i]);
            if (strncmp(unit, units[i], n) || (unit[n] != ' ' && unit[n] != '\n' && unit[n]))
                continue;
            char *first = unit;
            while (first > line + begin && strchr("0123456789.", first[-1]))
                first--;
            char size[32];
            snprintf(size, sizeof size, "%.*s", (int)(unit + n - first), first);
            while (first > line + begin && first[-1] == ' ')
                first--;
            snprintf(memory->what, sizeof memory->what, "%.*s", (int)(first - line - begin),
                     line + begin);
            if (memory->tier < 3 && strcmp(memory->what, "total") &&
                !zinf_size_parse(size, &memory->bytes))
                run->n_memory++;
            return;
        }
    }
}

static void read_ledger(struct plot_run *run, const char *folder)
{
    char *path = zinf_path_join(folder, "ledger.txt"), *line = NULL;
    size_t room = 0;
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && getline(&line, &room, file) > 0)
        if (line[0] == ' ')
            take_memory(run, line);
    if (file)
        fclose(file);
    free(line);
    free(path);
}

int plot_run_read(struct plot_run *run, const char *path)
{
    struct stat info;
    *run = (struct plot_run){.name = strdup(path)};
    if (!run->name)
        return zinf_fail(-ENOMEM, "no memory to read %s", path);
    size_t n = strlen(run->name);
    while (n > 1 && run->name[n - 1] == '/')
        run->name[--n] = 0;
    bool is_folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    char *log = is_folder ? zinf_path_join(path, "log.jsonl") : strdup(path);
    int code = log ? read_log(run, log) : -ENOMEM;
    free(log);
    if (!code && is_folder) {
        read_config(run, path);
        read_ledger(run, path);
    }
    if (code)
        plot_run_fini(run);
    return code;
}

void plot_run_fini(struct plot_run *run)
{
    for (int i = 0; i < PLOT_COLUMNS; i++)
        free(run->columns[i]);
    for (int i = 0; i < run->n_sets; i++)
        free(run->sets[i].loss);
    free(run->name);
    memset(run, 0, sizeof *run);
}

double plot_run_last(const struct plot_run *run, enum plot_column column)
{
    size_t want = run->n / 10, seen = 0;
    double sum = 0;
    want = want < 1 ? 1 : want > 100 ? 100 : want;
    for (size_t i = run->n; i-- > 0 && seen < want;) {
        if (!isfinite(run->columns[column][i]))
            continue;
        sum += run->columns[column][i];
        seen++;
    }
    return seen ? sum / (double)seen : NAN;
}

double plot_run_sum(const struct plot_run *run, enum plot_column column)
{
    double sum = 0;
    for (size_t i = 0; i < run->n; i++)
        sum += isfinite(run->columns[column][i]) ? run->columns[column][i] : 0;
    return sum;
}
