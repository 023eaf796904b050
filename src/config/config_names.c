/*
 * config_names: finding a key by its path, and guessing what an unknown one was meant to be: the
 * right key at the wrong level first, since no spelling checker finds that, then the nearest
 * spelling in the same section, then the nearest path anywhere.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <stdlib.h>

/* Longer names are far from everything; it bounds the work on hostile input too. */
#define MAX_NAME 96

/* What people coming from training arguments write. */
static const char *const synonyms[][2] = {
    {"max_grad_norm", "gradient_clipping"},
    {"clip_grad", "gradient_clipping"},
    {"learning_rate", "optimizer.params.lr"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"train_micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"warmup_steps", "scheduler.params.warmup_num_steps"},
    {"total_steps", "scheduler.params.total_num_steps"},
    {"zero_stage", "zero_optimization.stage"},
    {"learning_rate_scheduler", "scheduler"},
    {"lr_scheduler", "scheduler"},
    {"zero", "zero_optimization"},
    {"zero_opt", "zero_optimization"},
    {"optim", "optimizer"},
    {"grad_clip", "gradient_clipping"},
    {"accumulation_steps", "gradient_accumulation_steps"},
    {"batch_size", "train_batch_size"},
};

static bool is_wildcard(const char *path)
{
    size_t length = strlen(path);
    return length > 2 && !strcmp(path + length - 2, ".*");
}

/* Bytes of the section that path lies in: "a.b" of "a.b.c", nothing of "a". */
static size_t parent_bytes(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) : 0;
}

static const char *leaf_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const struct zinf_config_key *zinf_config_key_find(const char *path)
{
    const struct zinf_config_key *wildcard = NULL;
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        const struct zinf_config_key *key = &zinf_config_keys[i];
        if (!strcmp(key->path, path))
            return key;
        size_t section = strlen(key->path) - 1;
        if (is_wildcard(key->path) && !strncmp(key->path, path, section) && path[section])
            wildcard = key;
    }
    return wildcard;
}

const struct zinf_config_alias *zinf_config_alias_find(const char *path)
{
    for (size_t i = 0; i < zinf_config_n_aliases; i++)
        if (!strcmp(zinf_config_aliases[i].path, path))
            return &zinf_config_aliases[i];
    return NULL;
}

static bool lies_in(const char *path, const char *section, size_t section_bytes)
{
    return !strncmp(path, section, section_bytes) && path[section_bytes] == '.';
}

bool zinf_config_section_known(const char *path)
{
    size_t bytes = strlen(path);
    for (size_t i = 0; i < zinf_config_n_keys; i++)
        if (lies_in(zinf_config_keys[i].path, path, bytes))
            return true;
    for (size_t i = 0; i < zinf_config_n_aliases; i++)
        if (lies_in(zinf_config_aliases[i].path, path, bytes))
            return true;
    return false;
}

bool zinf_config_section_idle(const char *path)
{
    size_t bytes = parent_bytes(path);
    bool known = false;
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        if (!lies_in(zinf_config_keys[i].path, path, bytes))
            continue;
        if (zinf_config_keys[i].use == KEY_USED)
            return false;
        known = true;
    }
    return known;
}

bool zinf_config_name_idle(const char *name)
{
    bool known = false;
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        if (strcmp(leaf_of(zinf_config_keys[i].path), name) != 0)
            continue;
        if (zinf_config_keys[i].use != KEY_ACCEPTED)
            return false;
        known = true;
    }
    return known;
}

int zinf_config_edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[MAX_NAME + 1];
    if (n > MAX_NAME || m > MAX_NAME)
        return 2 * MAX_NAME;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[m];
}

/* ---- candidates: every section and every key worth suggesting, as whole paths ---- */

struct candidate {
    char path[MAX_NAME + 1];
    size_t key, at; /* row, and where in its path this candidate ends */
};

/* Steps to the next one; sections come once for each key in them, old names last. Starts from all
 * zeros. */
static bool candidate_next(struct candidate *c)
{
    for (; c->key < zinf_config_n_keys; c->key++, c->at = 0) {
        const char *path = zinf_config_keys[c->key].path;
        size_t length = strlen(path);
        if (path[0] == '_' || c->at >= length || length > MAX_NAME)
            continue;
        size_t end = c->at ? c->at + 1 : 0;
        end += strcspn(path + end, ".");
        c->at = end;
        bool whole = !path[end];
        if (whole && (is_wildcard(path) || zinf_config_keys[c->key].use == KEY_UNSUPPORTED))
            continue;
        snprintf(c->path, sizeof c->path, "%.*s", (int)end, path);
        return true;
    }
    for (; c->key < zinf_config_n_keys + zinf_config_n_aliases; c->key++) {
        const char *path = zinf_config_aliases[c->key - zinf_config_n_keys].path;
        if (strlen(path) > MAX_NAME || strstr(path, ".aio."))
            continue;
        c->key++;
        snprintf(c->path, sizeof c->path, "%s", path);
        return true;
    }
    return false;
}

#define MAX_PLACES 3
/* The same name in other sections; more than a few places ("enabled") say nothing. */
static int places_of(const char *path, char places[MAX_PLACES][MAX_NAME + 1])
{
    const char *leaf = leaf_of(path);
    int n = 0;
    for (struct candidate c = {0}; candidate_next(&c);) {
        bool seen = strcmp(leaf_of(c.path), leaf) != 0;
        for (int i = 0; i < n && !seen; i++)
            seen = !strcmp(places[i], c.path);
        if (seen)
            continue;
        if (n == MAX_PLACES)
            return 0;
        memcpy(places[n++], c.path, sizeof c.path);
    }
    return n;
}

static bool say_place(const char *path, char *out, size_t out_bytes)
{
    char places[MAX_PLACES][MAX_NAME + 1];
    int n = places_of(path, places), used = 0;
    for (int i = 0; i < n && (size_t)used < out_bytes; i++) {
        int section = (int)parent_bytes(places[i]);
        const char *opening = i ? " or" : "";
        used += section ? snprintf(out + used, out_bytes - (size_t)used, "%s in \"%.*s\"", opening,
                                   section, places[i])
                        : snprintf(out + used, out_bytes - (size_t)used, "%s at the top level",
                                   opening);
    }
    return n > 0;
}

/* Bytes of names that the nearest may be told by; ties are all of them. */
struct nearest {
    int distance;
    int n;
    char paths[MAX_PLACES][MAX_NAME + 1];
};

static void keep_near(struct nearest *near, const char *path, int distance)
{
    if (distance > near->distance)
        return;
    if (distance < near->distance)
        near->n = 0;
    near->distance = distance;
    for (int i = 0; i < near->n; i++)
        if (!strcmp(near->paths[i], path))
            return;
    if (near->n < MAX_PLACES)
        snprintf(near->paths[near->n++], sizeof near->paths[0], "%s", path);
}

/* The nearest candidates; with section_only, of those in the section of path. */
static void find_nearest(const char *path, bool section_only, struct nearest *near)
{
    size_t parent = parent_bytes(path);
    *near = (struct nearest){.distance = 2 * MAX_NAME};
    for (struct candidate c = {0}; candidate_next(&c);) {
        bool same = parent_bytes(c.path) == parent && !strncmp(c.path, path, parent);
        if (!section_only || same)
            keep_near(near, c.path, zinf_config_edit_distance(path, c.path));
    }
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#define MAX_WORDS 12
/* The words of a name in alphabetical order: comm_overlap and overlap_comm are alike. */
static void sort_words(const char *name, char out[MAX_NAME + 1])
{
    char copy[MAX_NAME + 1], *words[MAX_WORDS], *rest = copy;
    size_t used = 0;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", name);
    while (n < MAX_WORDS && (words[n] = strsep(&rest, "_")))
        n++;
    qsort(words, (size_t)n, sizeof *words, compare_words);
    out[0] = 0;
    for (int i = 0; i < n && used < MAX_NAME; i++)
        used += (size_t)snprintf(out + used, MAX_NAME + 1 - used, "%s_", words[i]);
}

/* The same words in another order, in the same section or elsewhere. */
static bool find_reordered(const char *path, struct nearest *near)
{
    char wanted[MAX_NAME + 1], words[MAX_NAME + 1];
    *near = (struct nearest){.distance = 0};
    if (strlen(leaf_of(path)) > MAX_NAME || !strchr(leaf_of(path), '_'))
        return false;
    sort_words(leaf_of(path), wanted);
    for (struct candidate c = {0}; candidate_next(&c);) {
        sort_words(leaf_of(c.path), words);
        if (!strcmp(words, wanted))
            keep_near(near, c.path, 0);
    }
    return near->n > 0;
}

static void say_near(const struct nearest *near, char *out, size_t out_bytes)
{
    size_t used = (size_t)snprintf(out, out_bytes, "; did you mean ");
    for (int i = 0; i < near->n && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s\"%s\"", i ? " or " : "",
                                 near->paths[i]);
    if (used < out_bytes)
        snprintf(out + used, out_bytes - used, "?");
}

/* "known here: a, b, c" when the section is known and small. */
static void say_section(const char *path, char *out, size_t out_bytes)
{
    size_t parent = parent_bytes(path), used = 0;
    const char *last = "";
    int n = 0;
    out[0] = 0;
    for (size_t i = 0; parent && i < zinf_config_n_keys; i++) {
        const char *name = zinf_config_keys[i].path;
        if (!lies_in(name, path, parent) || zinf_config_keys[i].use == KEY_UNSUPPORTED)
            continue;
        name += parent + 1;
        int bytes = (int)strcspn(name, ".");
        if (!strncmp(last, name, (size_t)bytes + 1) || name[0] == '*')
            continue;
        last = name;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%.*s",
                                 n++ ? ", " : "; the keys of this section are ", bytes, name);
        if (used >= out_bytes) /* too many to help */
            used = 0, out[0] = 0, parent = 0;
    }
}

bool zinf_config_key_suggest(const char *path, char *out, size_t out_bytes)
{
    const char *leaf = leaf_of(path);
    char place[256];
    struct nearest here, anywhere;
    int length = (int)strlen(leaf), whole = (int)strlen(path);
    out[0] = 0;
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        if (strcmp(leaf, synonyms[i][0]))
            continue;
        snprintf(out, out_bytes, "; the key for this is \"%s\"", synonyms[i][1]);
        return true;
    }
    if (say_place(path, place, sizeof place)) {
        snprintf(out, out_bytes, "; \"%.*s\" belongs%s", MAX_NAME, leaf, place);
        return true;
    }
    if (find_reordered(path, &here)) {
        say_near(&here, out, out_bytes);
        return true;
    }
    find_nearest(path, true, &here);
    find_nearest(path, false, &anywhere);
    bool is_here = here.n && here.distance <= (length >= 6 ? length / 3 : 1);
    if (is_here || anywhere.distance <= whole / 4)
        say_near(is_here ? &here : &anywhere, out, out_bytes);
    else
        say_section(path, out, out_bytes);
    return out[0] != 0;
}
