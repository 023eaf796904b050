/*
 * dataset: the windows of a training, whatever they come from: a stream of ids (id_stream.c) cut
 * into windows, a store of samples, rows that are taken as they are needed (flow.c), or a mixture
 * of such data sets. A window's place is computed, not stored, so that any position can be had at
 * once.
 */
#include "text/samples/id_stream.h"
#include "text/samples/samples_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

struct zinf_dataset {
    struct text_ids ids;
    uint64_t n_tokens, n_windows;
    uint32_t seq_len;
    bool shuffle;
    uint64_t seed;
    pthread_mutex_t lock;            /* guards window and reading ids */
    int32_t *window;                 /* [seq_len + 1] */
    struct zinf_masking masking;     /* of a stream; probability 0: none */
    struct zinf_tokens frame;        /* of a masked window, */
    uint32_t front;                  /* of which so many are in front */
    struct zinf_samples *samples;    /* NULL: a stream; else all above is unused */
    struct zinf_dataset_part *parts; /* [n_parts], with names of its own; NULL: there are none */
    uint32_t n_parts;
    struct text_mixture *mixture; /* of parts */
    struct text_flow flow;        /* arg NULL: all windows are there; else all above is unused */
};

/* ---- opening ---- */

static int check_options(const struct zinf_dataset_options *options)
{
    if (options->n_files < 1)
        return zinf_fail(-EINVAL, "no data file was given");
    if (!options->seq_len || options->seq_len == UINT32_MAX)
        return zinf_fail(-EINVAL, "a sequence length of %u is not usable", options->seq_len);
    if (!options->vocab)
        return zinf_fail(-EINVAL, "a vocabulary of 0 has no token");
    return 0;
}

/* Of the ids, which are there. */
static int make_windows(struct zinf_dataset *dataset)
{
    dataset->window = malloc(((size_t)dataset->seq_len + 1) * sizeof *dataset->window);
    if (!dataset->window)
        return zinf_fail(-ENOMEM, "no memory for a window of %u tokens", dataset->seq_len);
    dataset->n_tokens = dataset->ids.n_tokens;
    dataset->n_windows = (dataset->n_tokens - 1) / dataset->seq_len;
    return 0;
}

static int open_files(struct zinf_dataset *dataset, const struct zinf_dataset_options *options)
{
    int code = text_ids_open(&dataset->ids, options);
    if (!code)
        code = make_windows(dataset);
    if (!code && !dataset->n_windows)
        code = zinf_fail(-EINVAL,
                         "%s%s: %llu tokens are less than one window of %u and the token "
                         "after it: give more text or a smaller --seq-len",
                         options->files[0], options->n_files > 1 ? " and the other data files" : "",
                         (unsigned long long)dataset->n_tokens, dataset->seq_len);
    return code;
}

static int begin_masking(struct zinf_dataset *dataset, const struct zinf_dataset_options *options)
{
    const struct zinf_tokens nothing = {0};
    uint32_t behind;
    dataset->masking = *options->masking;
    zinf_tokenizer_sides(options->tokenizer, &dataset->front, &behind);
    return zinf_tokenizer_frame(options->tokenizer, &nothing, NULL, &dataset->frame, NULL);
}

/* Without data. NULL: there is no memory. */
static struct zinf_dataset *make_empty(const struct zinf_dataset_options *options)
{
    struct zinf_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) {
        zinf_fail(-ENOMEM, "no memory for a data set");
        return NULL;
    }
    pthread_mutex_init(&dataset->lock, NULL);
    dataset->seq_len = options->seq_len;
    dataset->shuffle = options->shuffle;
    dataset->seed = options->seed;
    return dataset;
}

int zinf_dataset_open(struct zinf_dataset **out, const struct zinf_dataset_options *options)
{
    int code = check_options(options);
    struct zinf_dataset *dataset = code ? NULL : make_empty(options);
    if (!dataset)
        return code ? code : -ENOMEM;
    code = open_files(dataset, options);
    if (!code && options->masking)
        code = begin_masking(dataset, options);
    if (code) {
        zinf_dataset_close(dataset);
        return code;
    }
    *out = dataset;
    return 0;
}

int text_dataset_of_ids(struct zinf_dataset **out, const struct zinf_dataset_options *options,
                        const int32_t *ids, uint64_t n)
{
    struct zinf_dataset *dataset = make_empty(options);
    int code = dataset ? 0 : -ENOMEM;
    if (!code)
        code = text_ids_of_memory(&dataset->ids, options->files[0], options->vocab, ids, n);
    if (!code)
        code = make_windows(dataset);
    if (code)
        zinf_dataset_close(dataset);
    else
        *out = dataset;
    return code;
}

int text_dataset_of_flow(struct zinf_dataset **out, const struct text_flow *flow)
{
    const struct zinf_dataset_options none = {0};
    struct zinf_dataset *dataset = make_empty(&none);
    if (!dataset) {
        flow->close(flow->arg);
        return -ENOMEM;
    }
    dataset->flow = *flow;
    dataset->n_windows = UINT64_MAX;
    *out = dataset;
    return 0;
}

static void free_parts(struct zinf_dataset_part *parts, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        zinf_dataset_close(parts[k].data);
        free((char *)(uintptr_t)parts[k].name);
    }
    free(parts);
}

void zinf_dataset_close(struct zinf_dataset *dataset)
{
    if (!dataset)
        return;
    text_ids_close(&dataset->ids);
    free(dataset->window);
    zinf_tokens_free(&dataset->frame);
    zinf_samples_close(dataset->samples);
    if (dataset->flow.arg) {
        dataset->flow.stop(dataset->flow.arg);
        dataset->flow.close(dataset->flow.arg);
    }
    text_mixture_destroy(dataset->mixture);
    free_parts(dataset->parts, dataset->n_parts);
    pthread_mutex_destroy(&dataset->lock);
    free(dataset);
}

int zinf_dataset_of_samples(struct zinf_dataset **out, struct zinf_samples *samples)
{
    struct zinf_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) {
        zinf_samples_close(samples);
        return zinf_fail(-ENOMEM, "no memory for a data set");
    }
    pthread_mutex_init(&dataset->lock, NULL);
    dataset->samples = samples;
    dataset->n_tokens = zinf_samples_facts(samples)->n_ids;
    dataset->n_windows = zinf_samples_n_windows(samples);
    *out = dataset;
    return 0;
}

/* Of parts that are the data set's by now. */
static int mix_parts(struct zinf_dataset *dataset, uint32_t together)
{
    double *weights = calloc(dataset->n_parts, sizeof *weights);
    if (!weights)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    for (uint32_t k = 0; k < dataset->n_parts; k++) {
        const struct zinf_dataset_part *part = &dataset->parts[k];
        weights[k] = part->weight;
        dataset->n_tokens += zinf_dataset_n_tokens(part->data);
        dataset->n_windows += zinf_dataset_n_windows(part->data);
    }
    int code = text_mixture_create(&dataset->mixture, weights, dataset->n_parts, together);
    free(weights);
    for (uint32_t k = 0; !code && k < dataset->n_parts; k++) {
        const char *name = dataset->parts[k].name;
        if (name && strlen(name) >= ZINF_MOST_SET_NAME)
            code = zinf_fail(-EINVAL, "the name %s is too long: at most %d characters", name,
                             ZINF_MOST_SET_NAME - 1);
    }
    return code;
}

int zinf_dataset_mix(struct zinf_dataset **out, const struct zinf_dataset_part *parts, uint32_t n,
                     uint32_t together)
{
    struct zinf_dataset *dataset = calloc(1, sizeof *dataset);
    struct zinf_dataset_part *own = calloc(n, sizeof *own);
    if (!dataset || !own) {
        for (uint32_t k = 0; k < n; k++)
            zinf_dataset_close(parts[k].data);
        free(dataset);
        free(own);
        return zinf_fail(-ENOMEM, "no memory for a data set");
    }
    pthread_mutex_init(&dataset->lock, NULL);
    dataset->parts = own;
    int code = 0;
    for (; dataset->n_parts < n; dataset->n_parts++) {
        const char *name = parts[dataset->n_parts].name;
        own[dataset->n_parts] = parts[dataset->n_parts];
        own[dataset->n_parts].name = name ? strdup(name) : NULL;
        if (name && !own[dataset->n_parts].name)
            code = zinf_fail(-ENOMEM, "no memory for the names of data sets");
    }
    if (!code)
        code = mix_parts(dataset, together);
    if (code)
        zinf_dataset_close(dataset);
    else
        *out = dataset;
    return code;
}

/* ---- parts ---- */

uint32_t zinf_dataset_n_parts(const struct zinf_dataset *dataset)
{
    return dataset->parts ? dataset->n_parts : 1;
}

struct zinf_dataset *zinf_dataset_part(struct zinf_dataset *dataset, uint32_t index)
{
    return dataset->parts ? dataset->parts[index].data : dataset;
}

const char *zinf_dataset_part_name(const struct zinf_dataset *dataset, uint32_t index)
{
    return dataset->parts ? dataset->parts[index].name : NULL;
}

double zinf_dataset_part_share(const struct zinf_dataset *dataset, uint32_t index)
{
    return dataset->parts ? text_mixture_share(dataset->mixture, index) : 1;
}

/* Where the window at a position is, and at which position there. */
static struct zinf_dataset *part_at(struct zinf_dataset *dataset, uint64_t *position)
{
    return dataset->parts ? dataset->parts[text_mixture_at(dataset->mixture, position)].data
                          : dataset;
}

struct zinf_samples *zinf_dataset_samples(const struct zinf_dataset *dataset)
{
    return dataset->samples;
}

bool zinf_dataset_has_samples(const struct zinf_dataset *dataset)
{
    bool any = dataset->samples || dataset->flow.has_samples;
    for (uint32_t k = 0; k < dataset->n_parts; k++)
        any = any || dataset->parts[k].data->samples;
    return any;
}

uint64_t zinf_dataset_n_tokens(const struct zinf_dataset *dataset)
{
    return dataset->n_tokens;
}

uint64_t zinf_dataset_n_windows(const struct zinf_dataset *dataset)
{
    return dataset->n_windows;
}

uint32_t zinf_dataset_window_tokens(const struct zinf_dataset *dataset)
{
    return dataset->seq_len;
}

bool zinf_dataset_flows(const struct zinf_dataset *dataset)
{
    return dataset->flow.arg != NULL;
}

void zinf_dataset_go_on(struct zinf_dataset *dataset, const struct zinf_flow_mark *mark)
{
    if (dataset->flow.arg)
        dataset->flow.go_on(dataset->flow.arg, mark);
}

struct zinf_flow_mark zinf_dataset_mark(struct zinf_dataset *dataset, uint64_t position)
{
    return dataset->flow.arg ? dataset->flow.mark(dataset->flow.arg, position)
                             : (struct zinf_flow_mark){0};
}

int zinf_dataset_reaches(struct zinf_dataset *dataset, uint64_t end, uint64_t wait_ns,
                         uint64_t *sum)
{
    *sum = 0;
    return dataset->flow.arg ? dataset->flow.reaches(dataset->flow.arg, end, wait_ns, sum) : 1;
}

void zinf_dataset_stop(struct zinf_dataset *dataset)
{
    if (dataset->flow.arg)
        dataset->flow.stop(dataset->flow.arg);
}

/* ---- what it is made of ---- */

uint32_t zinf_dataset_n_files(const struct zinf_dataset *dataset)
{
    uint32_t n = 0;
    if (dataset->samples)
        return samples_n_files(dataset->samples);
    for (uint32_t k = 0; k < dataset->n_parts; k++)
        n += zinf_dataset_n_files(dataset->parts[k].data);
    return dataset->parts ? n : text_ids_n_files(&dataset->ids);
}

/* The part that has it, and its number there. */
static const struct zinf_dataset *part_of_file(const struct zinf_dataset *dataset, uint32_t *index)
{
    for (uint32_t k = 0; k < dataset->n_parts; k++) {
        const struct zinf_dataset *part = dataset->parts[k].data;
        const uint32_t files = zinf_dataset_n_files(part);
        if (*index < files)
            return part;
        *index -= files;
    }
    return dataset;
}

int zinf_dataset_file(const struct zinf_dataset *dataset, uint32_t index,
                      struct zinf_data_file *out)
{
    dataset = part_of_file(dataset, &index);
    if (!dataset->samples)
        return text_ids_file(&dataset->ids, index, out);
    text_token_cache_describe(samples_file(dataset->samples, index), out);
    return 0;
}

static uint64_t order_of_parts(const struct zinf_dataset *dataset)
{
    uint64_t order = text_mixture_sum(dataset->mixture);
    for (uint32_t k = 0; k < dataset->n_parts; k++) {
        const struct zinf_dataset_part *part = &dataset->parts[k];
        const uint64_t numbers[] = {zinf_dataset_order(part->data),
                                    zinf_dataset_n_files(part->data)};
        const char *name = part->name ? part->name : "";
        order = XXH3_64bits_withSeed(numbers, sizeof numbers, order);
        order = XXH3_64bits_withSeed(name, strlen(name), order);
    }
    return order;
}

uint64_t zinf_dataset_order(const struct zinf_dataset *dataset)
{
    const uint64_t numbers[] = {dataset->seq_len, dataset->shuffle, dataset->seed,
                                (uint64_t)dataset->ids.separator};
    if (dataset->parts)
        return order_of_parts(dataset);
    if (dataset->flow.arg)
        return dataset->flow.order;
    return dataset->samples
               ? samples_order(dataset->samples)
               : zinf_masking_key(&dataset->masking, XXH3_64bits(numbers, sizeof numbers));
}

/* ---- reading ---- */

int zinf_dataset_read(struct zinf_dataset *dataset, uint64_t first, uint64_t n, int32_t *out)
{
    if (dataset->samples || dataset->parts || dataset->flow.arg)
        return zinf_fail(-ENOTSUP, "a store of samples is no stream of tokens");
    return text_ids_read(&dataset->ids, first, n, out);
}

int zinf_dataset_window(struct zinf_dataset *dataset, uint64_t position, int32_t *inputs,
                        int32_t *targets)
{
    dataset = part_at(dataset, &position);
    if (dataset->flow.arg) {
        const struct zinf_window window = {.ids = inputs, .targets = targets};
        return dataset->flow.fill(dataset->flow.arg, position, &window);
    }
    if (dataset->samples) {
        struct zinf_window window = {.ids = inputs, .targets = targets};
        return zinf_samples_window(dataset->samples, position, &window);
    }
    uint32_t length = dataset->seq_len;
    uint64_t index =
        text_window_index(position, dataset->n_windows, dataset->shuffle, dataset->seed);
    pthread_mutex_lock(&dataset->lock);
    int code = text_ids_read(&dataset->ids, index * length, (uint64_t)length + 1, dataset->window);
    if (!code && inputs)
        memcpy(inputs, dataset->window, length * sizeof *inputs);
    if (!code && targets)
        memcpy(targets, dataset->window + 1, length * sizeof *targets);
    pthread_mutex_unlock(&dataset->lock);
    return code;
}

bool zinf_dataset_reads_rows(const struct zinf_dataset *dataset)
{
    bool reads = !dataset->samples && !dataset->flow.arg && !(dataset->masking.probability > 0);
    for (uint32_t k = 0; k < dataset->n_parts; k++)
        reads &= zinf_dataset_reads_rows(dataset->parts[k].data);
    return reads;
}

int zinf_dataset_rows(struct zinf_dataset *dataset, uint64_t position, uint64_t first, uint64_t n,
                      int32_t *inputs, int32_t *targets)
{
    dataset = part_at(dataset, &position);
    const uint64_t row =
        first + dataset->seq_len * text_window_index(position, dataset->n_windows, dataset->shuffle,
                                                     dataset->seed);
    pthread_mutex_lock(&dataset->lock);
    int code = inputs ? text_ids_read(&dataset->ids, row, n, inputs) : 0;
    if (!code && targets)
        code = text_ids_read(&dataset->ids, row + 1, n, targets);
    pthread_mutex_unlock(&dataset->lock);
    return code;
}

/* Rows of a window of a stream. */
static uint32_t rows_of(const struct zinf_dataset *dataset)
{
    return dataset->seq_len + (uint32_t)dataset->frame.count;
}

/* Tokens of a stream within a frame, which is never masked. */
static int fill_masked(struct zinf_dataset *dataset, uint64_t position, const struct zinf_window *w)
{
    const uint32_t n = dataset->seq_len, front = dataset->front;
    const uint32_t all = rows_of(dataset);
    const struct zinf_masked masked = {
        .epoch = position / dataset->n_windows,
        .sample = text_window_index(position, dataset->n_windows, dataset->shuffle, dataset->seed),
        .n = n,
        .ids = w->ids + front,
        .targets = w->targets + front,
    };
    int code = zinf_dataset_window(dataset, position, w->ids + front, NULL);
    for (uint32_t i = 0; i < all; i++)
        w->targets[i] = -1;
    for (uint32_t i = 0; i < dataset->frame.count; i++)
        w->ids[i < front ? i : n + i] = dataset->frame.ids[i];
    if (!code)
        zinf_masking_apply(&dataset->masking, &masked);
    return code;
}

struct zinf_window_rows zinf_dataset_window_rows(struct zinf_dataset *dataset, uint64_t position)
{
    dataset = part_at(dataset, &position);
    if (dataset->flow.arg)
        return dataset->flow.rows(dataset->flow.arg, position);
    return dataset->samples ? zinf_samples_window_rows(dataset->samples, position)
                            : (struct zinf_window_rows){rows_of(dataset), 0};
}

int zinf_dataset_fill(struct zinf_dataset *dataset, uint64_t position, const struct zinf_window *w)
{
    dataset = part_at(dataset, &position);
    if (dataset->flow.arg)
        return dataset->flow.fill(dataset->flow.arg, position, w);
    const uint32_t length = rows_of(dataset);
    if (dataset->samples)
        return zinf_samples_window(dataset->samples, position, w);
    if (w->source_ids || w->source_segments)
        return zinf_fail(-ENOTSUP, "a stream of tokens has no sources: give pairs as rows");
    for (uint32_t i = 0; i < length; i++) {
        if (w->positions)
            w->positions[i] = (int32_t)i;
        if (w->segments)
            w->segments[i] = 1;
        if (w->token_types)
            w->token_types[i] = 0;
    }
    if (w->label)
        *w->label = -1;
    if (dataset->masking.probability > 0 && w->ids && w->targets)
        return fill_masked(dataset, position, w);
    return zinf_dataset_window(dataset, position, w->ids, w->targets);
}
