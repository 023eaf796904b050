/*
 * dataset: files of text or tokens as one stream of ids, cut into windows. The stream is a row of
 * segments (a file's tokens, or one end-of-text token between two files of documents); a window's
 * place is computed, not stored, so that any position can be had at once and nothing grows with
 * the data but the number of files. Ids that are in memory already are a segment, too, and rows
 * that are taken as they are needed (flow.c) stand beside all this: their groups are such data
 * sets.
 */
#include "text/internal.h"
#include "text/samples/samples_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct segment {
    enum { FROM_CACHE, FROM_TOKEN_FILE, FROM_MEMORY, SEPARATOR } kind;
    char *path;
    uint64_t first, count; /* in the stream */
    bool documents;        /* a row of them: an end-of-text token parts it from its neighbours */
    struct text_token_cache cache;
    struct zinf_token_source source;
    int32_t *ids; /* [count], of FROM_MEMORY */
};

struct zinf_dataset {
    struct segment *segments;
    size_t n_segments;
    int32_t separator;
    uint64_t n_tokens, n_windows;
    uint32_t seq_len, vocab;
    bool shuffle;
    uint64_t seed;
    pthread_mutex_t lock;            /* guards window */
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

/* By its first bytes; raw 16-bit ids have none of their own, so there the name has to say it. */
static bool is_token_file(const char *path)
{
    static const uint32_t llmc[] = {20240520, 20240801};
    unsigned char first[8] = {0};
    uint32_t word;
    size_t n = strlen(path);
    if (text_name_ends(path, n, ".bin") || text_name_ends(path, n, ".npy"))
        return true;
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode)) /* a pipe is read once */
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, first, sizeof first);
    if (fd >= 0)
        close(fd);
    memcpy(&word, first, sizeof word);
    return got == sizeof first &&
           (!memcmp(first, "\x93NUMPY", 6) || word == llmc[0] || word == llmc[1]);
}

/* ---- opening ---- */

static int open_token_file(struct segment *segment, const char *path,
                           const struct zinf_dataset_options *options)
{
    if (!options->open_token_file)
        return zinf_fail(-ENOTSUP, "%s: token files are not taken here, only text and JSON", path);
    int code = options->open_token_file(path, &segment->source);
    if (code)
        return code;
    segment->kind = FROM_TOKEN_FILE;
    segment->count = segment->source.count;
    if (!segment->count)
        return zinf_fail(-EINVAL, "the data file %s is empty", path);
    return 0;
}

static int bad_id(const struct zinf_dataset *dataset, const char *path, uint64_t at, uint32_t id)
{
    return zinf_fail(-ERANGE,
                     "%s: token %llu is id %u, but the model's vocabulary has only %u: "
                     "give the tokenizer or token file that belongs to the model",
                     path, (unsigned long long)at, id, dataset->vocab);
}

static int open_text_file(struct zinf_dataset *dataset, struct segment *segment, const char *path,
                          const struct zinf_dataset_options *options)
{
    if (!options->tokenizer)
        return zinf_fail(-EINVAL, "%s: text needs a tokenizer%s%s", path,
                         options->why_no_tokenizer ? ": " : "",
                         options->why_no_tokenizer ? options->why_no_tokenizer : "");
    segment->kind = FROM_CACHE;
    int code =
        text_token_cache_open(&segment->cache, path, options->text_column, options->skip_bad_rows,
                              options->tokenizer, options->cache_folder);
    if (code)
        return code;
    segment->documents = segment->cache.documents;
    segment->count = segment->cache.count;
    if (segment->cache.largest >= dataset->vocab)
        return bad_id(dataset, path, segment->cache.largest_at, segment->cache.largest);
    return 0;
}

static struct segment *append_segment(struct zinf_dataset *dataset, const char *path)
{
    struct segment *segment = &dataset->segments[dataset->n_segments];
    segment->cache.fd = -1;
    segment->path = strdup(path);
    if (!segment->path) {
        zinf_fail(-ENOMEM, "no memory for the data file %s", path);
        return NULL;
    }
    dataset->n_segments++;
    return segment;
}

/* Documents of two files meet here; the files themselves hold the tokens between their own. The
 * file at the end of the list moves on by one. */
static int insert_separator(struct zinf_dataset *dataset,
                            const struct zinf_dataset_options *options)
{
    int32_t end = options->tokenizer ? zinf_tokenizer_end_of_text(options->tokenizer) : -1;
    if (end < 0)
        return 0;
    struct segment *last = &dataset->segments[dataset->n_segments - 1];
    struct segment separator = {.kind = SEPARATOR, .count = 1, .first = dataset->n_tokens};
    separator.cache.fd = -1;
    separator.path = strdup("end-of-text token");
    if (!separator.path)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    last[1] = *last;
    *last = separator;
    dataset->n_segments++;
    dataset->separator = end;
    dataset->n_tokens++;
    if ((uint32_t)end >= dataset->vocab)
        return bad_id(dataset, separator.path, 0, (uint32_t)end);
    return 0;
}

static int append_file(struct zinf_dataset *dataset, int index,
                       const struct zinf_dataset_options *options)
{
    const char *path = options->files[index];
    struct segment *segment = append_segment(dataset, path);
    if (!segment)
        return -ENOMEM;
    int code = is_token_file(path) ? open_token_file(segment, path, options)
                                   : open_text_file(dataset, segment, path, options);
    if (!code && index && (segment->documents || segment[-1].documents))
        code = insert_separator(dataset, options);
    if (code)
        return code;
    segment = &dataset->segments[dataset->n_segments - 1];
    segment->first = dataset->n_tokens;
    dataset->n_tokens += segment->count;
    return 0;
}

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

static int open_files(struct zinf_dataset *dataset, const struct zinf_dataset_options *options)
{
    size_t most = 2 * (size_t)options->n_files;
    dataset->segments = calloc(most, sizeof *dataset->segments);
    dataset->window = malloc(((size_t)dataset->seq_len + 1) * sizeof *dataset->window);
    if (!dataset->segments || !dataset->window)
        return zinf_fail(-ENOMEM, "no memory for a data set of %d files", options->n_files);
    for (int i = 0; i < options->n_files; i++) {
        int code = append_file(dataset, i, options);
        if (code)
            return code;
    }
    dataset->n_windows = (dataset->n_tokens - 1) / dataset->seq_len;
    if (!dataset->n_windows)
        return zinf_fail(-EINVAL,
                         "%s%s: %llu tokens are less than one window of %u and the token "
                         "after it: give more text or a smaller --seq-len",
                         options->files[0], options->n_files > 1 ? " and the other data files" : "",
                         (unsigned long long)dataset->n_tokens, dataset->seq_len);
    return 0;
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
    dataset->vocab = options->vocab;
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
    struct segment *segment = dataset ? calloc(1, sizeof *segment) : NULL;
    if (!segment) {
        zinf_dataset_close(dataset);
        return zinf_fail(-ENOMEM, "no memory for a data set");
    }
    dataset->segments = segment;
    dataset->n_segments = 1;
    *segment = (struct segment){.kind = FROM_MEMORY, .count = n};
    segment->cache.fd = -1;
    segment->path = strdup(options->files[0]);
    segment->ids = malloc(n * sizeof *segment->ids);
    dataset->window = malloc(((size_t)dataset->seq_len + 1) * sizeof *dataset->window);
    if (!segment->path || !segment->ids || !dataset->window) {
        zinf_dataset_close(dataset);
        return zinf_fail(-ENOMEM, "no memory for %llu tokens", (unsigned long long)n);
    }
    memcpy(segment->ids, ids, n * sizeof *ids);
    dataset->n_tokens = n;
    dataset->n_windows = (n - 1) / dataset->seq_len;
    *out = dataset;
    return 0;
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
    for (size_t i = 0; i < dataset->n_segments; i++) {
        struct segment *segment = &dataset->segments[i];
        text_token_cache_close(&segment->cache);
        if (segment->source.close)
            segment->source.close(segment->source.handle);
        free(segment->ids);
        free(segment->path);
    }
    free(dataset->segments);
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

/* The file's segment: those between files are none's. */
static const struct segment *segment_of_file(const struct zinf_dataset *dataset, uint32_t index)
{
    for (size_t i = 0; i < dataset->n_segments; i++)
        if (dataset->segments[i].kind != SEPARATOR && !index--)
            return &dataset->segments[i];
    return NULL;
}

uint32_t zinf_dataset_n_files(const struct zinf_dataset *dataset)
{
    uint32_t n = 0;
    if (dataset->samples)
        return samples_n_files(dataset->samples);
    for (uint32_t k = 0; k < dataset->n_parts; k++)
        n += zinf_dataset_n_files(dataset->parts[k].data);
    if (dataset->parts)
        return n;
    while (segment_of_file(dataset, n))
        n++;
    return n;
}

/* Token files have no sums of their own. */
static int sum_token_file(const struct segment *segment, uint64_t *out)
{
    int32_t ids[16384];
    const uint64_t step = sizeof ids / sizeof *ids;
    XXH3_state_t *state = XXH3_createState();
    int code = state ? 0 : zinf_fail(-ENOMEM, "no memory to sum %s", segment->path);
    if (state)
        XXH3_64bits_reset(state);
    for (uint64_t at = 0; !code && at < segment->count; at += step) {
        uint64_t left = segment->count - at, n = left < step ? left : step;
        code = segment->source.read(segment->source.handle, at, n, ids);
        if (!code)
            XXH3_64bits_update(state, ids, n * sizeof *ids);
    }
    *out = code ? 0 : XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return code;
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
    const struct text_token_cache *cache;
    const struct segment *segment = NULL;
    int code = 0;
    dataset = part_of_file(dataset, &index);
    if (dataset->samples)
        cache = samples_file(dataset->samples, index);
    else if (!(segment = segment_of_file(dataset, index)))
        return zinf_fail(-EINVAL, "data file %u is not there", index);
    else
        cache = segment->kind == FROM_CACHE ? &segment->cache : NULL;
    *out = (struct zinf_data_file){.path = cache ? cache->path : segment->path};
    out->count = cache ? cache->count : segment->count;
    out->lines = cache ? cache->lines : NULL;
    if (cache)
        out->sum = text_token_cache_sum(cache);
    else
        code = sum_token_file(segment, &out->sum);
    return code;
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
                                (uint64_t)dataset->separator};
    if (dataset->parts)
        return order_of_parts(dataset);
    if (dataset->flow.arg)
        return dataset->flow.order;
    return dataset->samples
               ? samples_order(dataset->samples)
               : zinf_masking_key(&dataset->masking, XXH3_64bits(numbers, sizeof numbers));
}

/* ---- reading ---- */

/* The last segment that begins at or before token first. */
static size_t segment_of(const struct zinf_dataset *dataset, uint64_t first)
{
    size_t low = 0, high = dataset->n_segments;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (dataset->segments[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int read_segment(const struct zinf_dataset *dataset, const struct segment *segment,
                        uint64_t first, uint64_t n, int32_t *out)
{
    int code = 0;
    if (segment->kind == SEPARATOR)
        out[0] = dataset->separator;
    else if (segment->kind == FROM_CACHE)
        code = text_token_cache_read(&segment->cache, first, n, out);
    else if (segment->kind == FROM_MEMORY)
        memcpy(out, segment->ids + first, n * sizeof *out);
    else
        code = segment->source.read(segment->source.handle, first, n, out);
    if (code)
        return code;
    for (uint64_t i = 0; i < n; i++) /* negative ids are large ones here */
        if ((uint32_t)out[i] >= dataset->vocab)
            return bad_id(dataset, segment->path, first + i, (uint32_t)out[i]);
    return 0;
}

int zinf_dataset_read(struct zinf_dataset *dataset, uint64_t first, uint64_t n, int32_t *out)
{
    if (dataset->samples || dataset->parts || dataset->flow.arg)
        return zinf_fail(-ENOTSUP, "a store of samples is no stream of tokens");
    if (first > dataset->n_tokens || n > dataset->n_tokens - first)
        return zinf_fail(-EINVAL, "tokens %llu to %llu are beyond the data's %llu",
                         (unsigned long long)first, (unsigned long long)(first + n),
                         (unsigned long long)dataset->n_tokens);
    for (size_t i = segment_of(dataset, first); n; i++) {
        const struct segment *segment = &dataset->segments[i];
        uint64_t within = first - segment->first, left = segment->count - within;
        uint64_t part = n < left ? n : left;
        int code = read_segment(dataset, segment, within, part, out);
        if (code)
            return code;
        out += part;
        first += part;
        n -= part;
    }
    return 0;
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
    int code = zinf_dataset_read(dataset, index * length, (uint64_t)length + 1, dataset->window);
    if (!code && inputs)
        memcpy(inputs, dataset->window, length * sizeof *inputs);
    if (!code && targets)
        memcpy(targets, dataset->window + 1, length * sizeof *targets);
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
