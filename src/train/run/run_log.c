/* run_log: lines are flushed as they are written, so that a killed run keeps what it logged. */
#include "train/run/run_log.h"

#include <math.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum csv_tag {
    CSV_LOSS,
    CSV_LR,
    CSV_LOSS_SCALE,
    CSV_TAGS,
};

struct run_log {
    FILE *json;
    FILE *csv[CSV_TAGS]; /* NULL: csv_monitor is off */
    uint64_t samples, batch;
};

/* Number at the beginning of a line, behind what every line begins with; -1: there is none, or the
 * line is not whole. */
static int64_t line_number(const char *line, const char *start)
{
    size_t n = strlen(start);
    char *end;
    if (strncmp(line, start, n) || !strchr(line, '\n'))
        return -1;
    long long number = strtoll(line + n, &end, 10);
    return end == line + n ? -1 : number;
}

/* Cuts off the first line whose number is above last and all behind it: steps that a run made after
 * the checkpoint from which it goes on. */
static int cut_lines(FILE *file, const char *path, const char *start, bool has_head, int64_t last)
{
    char *line = NULL;
    size_t capacity = 0;
    long keep = 0;
    if (has_head && getline(&line, &capacity, file) > 0)
        keep = ftell(file);
    while (getline(&line, &capacity, file) > 0) {
        int64_t number = line_number(line, start);
        if (number < 0 || number > last)
            break;
        keep = ftell(file);
    }
    free(line);
    if (fseek(file, keep, SEEK_SET) || ftruncate(fileno(file), keep))
        return zinf_fail(-errno, "cannot cut the log %s: %s", path, strerror(errno));
    return 0;
}

/* *is_new: nothing is in it. */
static FILE *open_log(const char *path, const char *start, bool has_head, int64_t last,
                      bool *is_new)
{
    if (zinf_check_link(path))
        return NULL;
    FILE *file = last < 0 ? NULL : fopen(path, "r+");
    if (file && cut_lines(file, path, start, has_head, last)) {
        fclose(file);
        return NULL;
    }
    *is_new = !file || ftell(file) == 0;
    /* A file with a head is csv_monitor's, whose rows of earlier runs stay, as in DeepSpeed. */
    if (!file) {
        file = fopen(path, has_head ? "a" : "w");
        *is_new = file && (fseek(file, 0, SEEK_END) || ftell(file) == 0);
    }
    if (!file)
        zinf_fail(-errno, "cannot write the log %s: %s", path, strerror(errno));
    return file;
}

static int open_csv(struct run_log *log, const struct zinf_config *config)
{
    static const char *const tags[] = {"train_loss", "lr", "loss_scale"};
    char folder[2048], path[2304];
    snprintf(folder, sizeof folder, "%s/%s",
             config->csv_output_path ? config->csv_output_path : ".",
             config->csv_job_name ? config->csv_job_name : "DeepSpeedJobName");
    int code = zinf_make_dirs(folder);
    for (int tag = 0; !code && tag < CSV_TAGS; tag++) {
        if (tag == CSV_LOSS_SCALE && !config->fp16.enabled)
            continue;
        snprintf(path, sizeof path, "%s/Train_Samples_%s.csv", folder, tags[tag]);
        bool is_new = true;
        log->csv[tag] =
            open_log(path, "", true, log->samples ? (int64_t)log->samples : -1, &is_new);
        if (log->csv[tag] && is_new)
            fprintf(log->csv[tag], "step,%s\n", tags[tag]);
        if (!log->csv[tag])
            code = -EIO;
    }
    return code ? zinf_fail_in(code, "csv_monitor") : 0;
}

int run_log_open(struct run_log **out, const struct zinf_run_options *options,
                 const struct zinf_config *config, uint64_t step)
{
    bool is_new;
    struct run_log *log = calloc(1, sizeof *log);
    char *path = options->log_path ? strdup(options->log_path)
                                   : zinf_path_join(options->output, "log.jsonl");
    int code = 0;
    if (!log || !path) {
        code = zinf_fail(-ENOMEM, "no memory for the log");
        goto out;
    }
    log->batch = (uint64_t)config->train_batch_size;
    log->samples = step * log->batch;
    log->json = open_log(path, "{\"step\": ", false, step ? (int64_t)step : -1, &is_new);
    if (!log->json)
        code = zinf_fail_in(-EIO, options->log_path ? "--log" : "--output");
    if (!code && config->csv_enabled)
        code = open_csv(log, config);
out:
    free(path);
    if (code)
        run_log_close(log);
    else
        *out = log;
    return code;
}

#define MOST_KEY (ZINF_MOST_SET_NAME + 64)

/* JSON has no NaN or Inf. */
static void print_number(FILE *file, const char *key, double value)
{
    if (isfinite(value))
        fprintf(file, ", \"%s\": %.9g", key, value);
    else
        fprintf(file, ", \"%s\": null", key);
}

/* Under TRL's names; prefix: "eval_" of an evaluation's. */
static void print_rewards(FILE *file, const char *prefix, const struct zinf_rewards *r)
{
    char key[MOST_KEY];
    const struct {
        const char *name;
        double value;
    } figures[] = {{"chosen", r->chosen},
                   {"rejected", r->rejected},
                   {"margins", r->chosen - r->rejected},
                   {"accuracies", r->accuracy}};
    if (r->n && r->has_kl) {
        snprintf(key, sizeof key, "%skl", prefix);
        print_number(file, key, r->kl);
    }
    for (size_t i = 0; r->n && i < sizeof figures / sizeof *figures; i++) {
        snprintf(key, sizeof key, "%srewards/%s", prefix, figures[i].name);
        print_number(file, key, figures[i].value);
    }
}

static int finish_line(FILE *file)
{
    fputs("}\n", file);
    if (fflush(file) || ferror(file))
        return zinf_fail(-EIO, "cannot write the log: is the disk full?");
    return 0;
}

static int csv_line(struct run_log *log, enum csv_tag tag, double value)
{
    FILE *file = log->csv[tag];
    if (!file)
        return 0;
    fprintf(file, "%llu,%.9g\n", (unsigned long long)log->samples, value);
    return fflush(file) ? zinf_fail(-EIO, "cannot write csv_monitor's files") : 0;
}

static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
#define N_LANES (sizeof lanes / sizeof *lanes - 1) /* of a process alone */

/* Which lane stood still for which other, where that took a millisecond or more. */
static void print_stalls(FILE *file, const struct zinf_step_result *r)
{
    bool any = false;
    fputs(", \"stall_seconds\": {", file);
    for (size_t i = 0; i < N_LANES; i++) {
        bool some = false;
        for (size_t k = 0; k < N_LANES; k++) {
            if (i == k || r->stall_seconds[i][k] < 0.001)
                continue;
            if (!some)
                fprintf(file, "%s\"%s\": {", any ? ", " : "", lanes[i]);
            fprintf(file, "%s\"%s\": %.4f", some ? ", " : "", lanes[k], r->stall_seconds[i][k]);
            some = any = true;
        }
        if (some)
            fputc('}', file);
    }
    fputc('}', file);
}

static void print_lanes(FILE *file, const double seconds[], size_t n)
{
    fputs("\"lane_seconds\": {", file);
    for (size_t i = 0; i < n; i++)
        fprintf(file, "%s\"%s\": %.4f", i ? ", " : "", lanes[i], seconds[i]);
    fputc('}', file);
}

/* Each by its number, what all of it together is not told of above. */
static void print_seats(FILE *file, const struct run_seats *seats)
{
    for (uint32_t s = 0; s < seats->n; s++) {
        const struct run_seat_times *t = &seats->times[s];
        fputs(s ? ", {" : ", \"seats\": [{", file);
        print_lanes(file, t->lane_seconds, N_LANES + 1);
        fprintf(file, ", \"drive_bytes_read\": %llu, \"drive_bytes_written\": %llu}",
                (unsigned long long)t->lane_bytes[0], (unsigned long long)t->lane_bytes[1]);
    }
    if (seats->n)
        fputc(']', file);
}

/* Under the names of Hugging Face's Trainer, where a set's own stands behind "eval_". */
static void print_evaluation(FILE *file, const struct run_evaluation *e)
{
    char prefix[ZINF_MOST_SET_NAME + 8], key[MOST_KEY];
    if (!e->tokens)
        return;
    snprintf(prefix, sizeof prefix, "eval_%s%s", e->set ? e->set : "", e->set ? "_" : "");
    snprintf(key, sizeof key, "%sloss", prefix);
    print_number(file, key, e->loss);
    snprintf(key, sizeof key, "%sperplexity", prefix);
    if (!e->of_samples)
        print_number(file, key, exp(e->cross_entropy));
    fprintf(file, ", \"%s%s\": %llu", prefix, e->of_samples ? "samples" : "tokens",
            (unsigned long long)e->tokens);
    print_rewards(file, prefix, &e->rewards);
    for (int i = 0; e->scored && i < e->scored->n; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, zinf_metric_facts(e->scored->metrics[i])->name);
        print_number(file, key, e->scores[i]);
    }
}

int run_log_step(struct run_log *log, const struct zinf_step_result *r,
                 const struct run_looks *looks, const struct run_seats *seats)
{
    FILE *file = log->json;
    fprintf(file, "{\"step\": %llu", (unsigned long long)r->step);
    print_number(file, "loss", r->loss);
    print_number(file, "grad_norm", r->grad_norm);
    print_number(file, "lr", r->lr);
    print_rewards(file, "", &r->rewards);
    print_number(file, "loss_scale", r->loss_scale);
    fprintf(file, ", \"skipped\": %s, \"tokens\": %llu", r->skipped ? "true" : "false",
            (unsigned long long)r->tokens);
    fprintf(file, ", \"seq_len\": %lld", (long long)r->seq_len);
    print_number(file, "step_seconds", r->seconds);
    print_number(file, "tokens_per_second", (double)r->tokens / r->seconds);
    if (r->predicted_seconds > 0)
        print_number(file, "predicted_seconds", r->predicted_seconds);
    if (r->predicted_range[1] > 0)
        fprintf(file, ", \"predicted_range\": [%.9g, %.9g]", r->predicted_range[0],
                r->predicted_range[1]);
    fprintf(file, ", \"schedule\": \"%s\", \"redone\": %llu", r->schedule ? r->schedule : "",
            (unsigned long long)r->n_redone);
    fputs(", ", file);
    print_lanes(file, r->lane_seconds, N_LANES);
    print_stalls(file, r);
    fprintf(file, ", \"drive_bytes_read\": %llu, \"drive_bytes_written\": %llu",
            (unsigned long long)r->lane_bytes[0], (unsigned long long)r->lane_bytes[1]);
    if (r->pageable_copies >= 0)
        fprintf(file, ", \"pageable_copies\": %lld", (long long)r->pageable_copies);
    print_seats(file, seats);
    fprintf(file, ", \"bottleneck\": \"%s\"", r->bottleneck);
    for (uint32_t i = 0; i < looks->n; i++)
        print_evaluation(file, &looks->evaluations[i]);
    if (looks->samples)
        fprintf(file, ", \"samples\": %s", looks->samples);
    int code = finish_line(file);
    log->samples += log->batch;
    if (!code)
        code = csv_line(log, CSV_LOSS, r->loss);
    if (!code)
        code = csv_line(log, CSV_LR, r->lr);
    return code ? code : csv_line(log, CSV_LOSS_SCALE, r->loss_scale);
}

int run_log_close(struct run_log *log)
{
    int code = 0;
    if (!log)
        return 0;
    if (log->json && fclose(log->json))
        code = zinf_fail(-EIO, "cannot write the log: is the disk full?");
    for (int tag = 0; tag < CSV_TAGS; tag++)
        if (log->csv[tag] && fclose(log->csv[tag]))
            code = zinf_fail(-EIO, "cannot write csv_monitor's files");
    free(log);
    return code;
}

uint64_t run_log_last(const struct zinf_run_options *o)
{
    char *path = o->log_path ? strdup(o->log_path) : zinf_path_join(o->output, "log.jsonl");
    FILE *file = path ? fopen(path, "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    uint64_t last = 0;
    while (file && getline(&line, &capacity, file) > 0)
        if (sscanf(line, "{\"step\": %" SCNu64 ",", &last) != 1)
            break;
    free(line);
    if (file)
        fclose(file);
    free(path);
    return last;
}
