/*
 * plot_export: a run's log for other programs: CSV, event files of TensorBoard, and Trainer's
 * trainer_state.json. Names are those of Hugging Face's Trainer where it has one.
 */
#include "cli/plot/plot.h"
#include "cli/tb_events.h"

#include "base/json.h"
#include <math.h>

/* Longer histories are thinned, as Trainer's logging_steps does. */
#define MAX_HISTORY 2000

/* ---- CSV ---- */

static void put_value(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, ",%.9g", value);
    else
        fputc(',', out);
}

int plot_csv_write(const struct plot_run *run, const char *path)
{
    FILE *out = strcmp(path, "-") ? fopen(path, "w") : stdout;
    if (!out)
        return zinf_fail(-errno, "--csv: cannot write %s: %s", path, strerror(errno));
    static const struct plot_set none;
    const struct plot_set *sets = run->n_sets ? run->sets : &none;
    const int n_sets = run->n_sets ? run->n_sets : 1;
    char key[ZINF_MOST_SET_NAME + 16];
    fputs("step,loss,grad_norm,learning_rate,tokens,step_seconds,predicted_seconds", out);
    for (int i = 0; i < n_sets; i++)
        fprintf(out, ",%s", plot_set_key(&sets[i], "eval_", key));
    fputs(",skipped,drive_bytes_read,drive_bytes_written", out);
    for (int i = 0; i < PLOT_LANES; i++)
        fprintf(out, ",%s_seconds", plot_lanes[i]);
    fputc('\n', out);
    for (size_t i = 0; i < run->n; i++) {
        fprintf(out, "%.0f", run->columns[PLOT_STEP][i]);
        for (int column = PLOT_LOSS; column < PLOT_COLUMNS; column++) {
            for (int k = 0; column == PLOT_SKIPPED && k < n_sets; k++)
                put_value(out, sets[k].loss ? sets[k].loss[i] : NAN);
            put_value(out, run->columns[column][i]);
        }
        fputc('\n', out);
    }
    bool bad = ferror(out);
    if ((out != stdout && fclose(out)) || bad)
        return zinf_fail(-EIO, "--csv: cannot write %s: is the disk full?", path);
    return 0;
}

/* ---- event files ---- */

/* The log has no clock: steps follow each other, and the last one ends now. */
int plot_events_write(const struct plot_run *run, const char *folder)
{
    static const struct {
        enum plot_column column;
        const char *tag;
    } tags[] = {{PLOT_LOSS, "train/loss"},
                {PLOT_NORM, "train/grad_norm"},
                {PLOT_LR, "train/learning_rate"},
                {PLOT_SECONDS, "train/step_seconds"}};
    char tag[ZINF_MOST_SET_NAME + 16];
    struct tb_writer *writer = NULL;
    double wall = tb_wall_seconds() - plot_run_sum(run, PLOT_SECONDS);
    int code = tb_writer_open(&writer, folder, wall);
    for (size_t i = 0; i < run->n && !code; i++) {
        wall += isfinite(run->columns[PLOT_SECONDS][i]) ? run->columns[PLOT_SECONDS][i] : 0;
        for (size_t k = 0; k < sizeof tags / sizeof *tags && !code; k++)
            code = tb_writer_scalar(writer, wall, (int64_t)run->columns[PLOT_STEP][i], tags[k].tag,
                                    run->columns[tags[k].column][i]);
        for (int k = 0; k < run->n_sets && !code; k++)
            code =
                tb_writer_scalar(writer, wall, (int64_t)run->columns[PLOT_STEP][i],
                                 plot_set_key(&run->sets[k], "eval/", tag), run->sets[k].loss[i]);
    }
    int closed = tb_writer_close(writer);
    code = code ? code : closed;
    return code ? zinf_fail_in(code, "--tensorboard") : 0;
}

/* ---- trainer_state.json ---- */

static void add_number(cJSON *object, const char *key, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
}

static cJSON *entry_of(cJSON *history, double epoch)
{
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddItemToArray(history, entry);
    add_number(entry, "epoch", epoch);
    return entry;
}

/* An entry each every steps, with the mean loss since the last, and one for each evaluation. */
static void add_history(cJSON *history, const struct plot_run *run, size_t every)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < run->n; i++) {
        double step = run->columns[PLOT_STEP][i], loss = run->columns[PLOT_LOSS][i];
        double epoch = run->windows > 0 ? step * run->batch / run->windows : NAN;
        if (isfinite(loss)) {
            sum += loss;
            n++;
        }
        if ((i + 1) % every == 0 || i + 1 == run->n) {
            cJSON *entry = entry_of(history, epoch);
            add_number(entry, "grad_norm", run->columns[PLOT_NORM][i]);
            add_number(entry, "learning_rate", run->columns[PLOT_LR][i]);
            add_number(entry, "loss", n > 0 ? sum / n : NAN);
            add_number(entry, "step", step);
            sum = n = 0;
        }
        for (int k = 0; k < run->n_sets; k++) {
            char key[ZINF_MOST_SET_NAME + 16];
            if (!isfinite(run->sets[k].loss[i]))
                continue;
            cJSON *entry = entry_of(history, epoch);
            add_number(entry, plot_set_key(&run->sets[k], "eval_", key), run->sets[k].loss[i]);
            add_number(entry, "step", step);
        }
    }
}

/* The lowest loss of the first evaluation set; null where there was none. */
static void add_best(cJSON *root, const struct plot_run *run)
{
    const double *loss = run->sets[0].loss;
    size_t best = SIZE_MAX;
    for (size_t i = 0; loss && i < run->n; i++)
        if (isfinite(loss[i]) && (best == SIZE_MAX || loss[i] < loss[best]))
            best = i;
    if (best == SIZE_MAX) {
        cJSON_AddNullToObject(root, "best_global_step");
        cJSON_AddNullToObject(root, "best_metric");
        return;
    }
    cJSON_AddNumberToObject(root, "best_global_step", run->columns[PLOT_STEP][best]);
    cJSON_AddNumberToObject(root, "best_metric", loss[best]);
}

/* Keys in the order of their names, as Trainer writes them. */
static cJSON *state_of(const struct plot_run *run)
{
    cJSON *root = cJSON_CreateObject();
    size_t every = (run->n + MAX_HISTORY - 1) / MAX_HISTORY;
    double last = run->columns[PLOT_STEP][run->n - 1];
    double total = run->steps > 0 ? run->steps : last, each = run->batch / run->windows;
    add_best(root, run);
    cJSON_AddNullToObject(root, "best_model_checkpoint");
    add_number(root, "epoch", run->windows > 0 ? last * each : 0);
    cJSON_AddNumberToObject(root, "eval_steps", 0);
    add_number(root, "global_step", last);
    cJSON_AddBoolToObject(root, "is_hyper_param_search", false);
    cJSON_AddBoolToObject(root, "is_local_process_zero", true);
    cJSON_AddBoolToObject(root, "is_world_process_zero", true);
    add_history(cJSON_AddArrayToObject(root, "log_history"), run, every);
    cJSON_AddNumberToObject(root, "logging_steps", (double)every);
    add_number(root, "max_steps", total);
    add_number(root, "num_input_tokens_seen", plot_run_sum(run, PLOT_TOKENS));
    add_number(root, "num_train_epochs", run->windows > 0 ? ceil(total * each) : 1);
    cJSON_AddNumberToObject(root, "save_steps", 0);
    cJSON_AddObjectToObject(root, "stateful_callbacks");
    cJSON_AddNumberToObject(root, "total_flos", 0);
    add_number(root, "train_batch_size", run->micro_batch);
    cJSON_AddNullToObject(root, "trial_name");
    cJSON_AddNullToObject(root, "trial_params");
    return root;
}

int plot_trainer_state_write(const struct plot_run *run, const char *path)
{
    cJSON *root = state_of(run);
    char *text = cJSON_Print(root);
    int code = text ? zinf_file_write_atomic(path, text, strlen(text))
                    : zinf_fail(-ENOMEM, "no memory for %s", path);
    cJSON_free(text);
    cJSON_Delete(root);
    return code;
}
