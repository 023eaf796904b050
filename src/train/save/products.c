/*
 * products: by which algorithms a GPU multiplies, as a part of a training. Each gives sums of other
 * last bits, so the choice must be the same from step to step, on all ranks, and in each run that
 * goes on from this one. Rank 0's GPU times what no file says, and gives its list to all ranks. A
 * list is written beside the run's checkpoints, and into the user's cache, so that runs of one
 * machine have one list.
 *
 * A gradient is a product that is added to a sum. Where it makes no difference to bits, products
 * add it themselves; a run that began without that stays without.
 */
#include "base/cache.h"
#include "base/json.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define MAX_FILE_BYTES ((size_t)4 << 20)
#define MAX_PRODUCTS 4096 /* of a training; a list of more is damaged */
enum { FORMAT = 2, WITHOUT_SUM = 1, BY_BYTES = 400 };
#define ADDS "gradients_add"

enum {
    KEY_NUMBERS = sizeof((struct zinf_product *)0)->key / sizeof(int64_t),
    WAY_NUMBERS = sizeof((struct zinf_product *)0)->way / sizeof(uint64_t),
};

static struct zinf_product *find(const struct zinf_products *list, const struct zinf_product *p)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!memcmp(list->items[i].key, p->key, sizeof p->key))
            return &list->items[i];
    return NULL;
}

static int add(struct zinf_products *list, const struct zinf_product *p)
{
    if (list->n == list->room) {
        const uint32_t room = list->room ? 2 * list->room : 32;
        struct zinf_product *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return zinf_fail(-ENOMEM, "no memory for %u products", room);
        list->items = items;
        list->room = room;
    }
    list->items[list->n++] = *p;
    return 0;
}

/* ---- as a file ---- */

static bool numbers_of(const cJSON *array, uint64_t *out, int n)
{
    const cJSON *item;
    int i = 0;
    cJSON_ArrayForEach(item, array)
    {
        const char *text = cJSON_GetStringValue(item);
        char *end = NULL;
        if (!text || i == n)
            return false;
        out[i++] = strtoull(text, &end, 16);
        if (*end || end == text)
            return false;
    }
    return i == n;
}

static bool add_numbers(cJSON *object, const char *name, const uint64_t *numbers, int n)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    bool good = array;
    for (int i = 0; good && i < n; i++) {
        char text[20];
        snprintf(text, sizeof text, "%" PRIx64, numbers[i]);
        good = cJSON_AddItemToArray(array, cJSON_CreateString(text));
    }
    return good;
}

/* Another digit is another algorithm, which would compute as well. */
static int check_whole(cJSON *root, const char *path)
{
    int64_t format = 0;
    int code = zinf_json_int(root, path, "format", &format);
    if (!code && format != FORMAT && format != WITHOUT_SUM)
        code = zinf_fail(-EINVAL, "%s has format %lld; %d is known", path, (long long)format,
                         (int)FORMAT);
    if (!code && format == FORMAT && !zinf_json_unseal(root))
        code = zinf_fail(-EBADMSG, "%s is damaged: its checksum is wrong", path);
    return code;
}

static int parse(const cJSON *root, const char *path, struct zinf_products *out)
{
    const cJSON *item;
    int code = 0;
    out->adds = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, ADDS));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "products"))
    {
        struct zinf_product p = {.chosen = 1};
        if (!code &&
            (!numbers_of(cJSON_GetObjectItemCaseSensitive(item, "product"), (uint64_t *)p.key,
                         KEY_NUMBERS) ||
             !numbers_of(cJSON_GetObjectItemCaseSensitive(item, "algorithm"), p.way, WAY_NUMBERS)))
            code = zinf_fail(-EINVAL, "%s: product %u is no list of %d and %d numbers", path,
                             out->n, (int)KEY_NUMBERS, (int)WAY_NUMBERS);
        if (!code)
            code = add(out, &p);
    }
    return code;
}

/* 1: the list of another GPU or library, whose name is in by; -ENOENT: no such file. */
static int read_list(const char *path, const char *own, struct zinf_products *out,
                     char by[static BY_BYTES])
{
    cJSON *root = NULL;
    int code = zinf_json_read_file(path, MAX_FILE_BYTES, ZINF_JSON_STRICT, &root);
    if (!code)
        code = check_whole(root, path);
    if (!code) {
        snprintf(by, BY_BYTES, "%s", zinf_json_word(root, "by"));
        code = strcmp(by, own) != 0 ? 1 : parse(root, path, out);
    }
    cJSON_Delete(root);
    return code;
}

static int write_list(const struct zinf_products *list, const char *by, const char *path)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *array = cJSON_AddArrayToObject(root, "products");
    bool good = array && cJSON_AddNumberToObject(root, "format", FORMAT) &&
                cJSON_AddStringToObject(root, "by", by) &&
                cJSON_AddBoolToObject(root, ADDS, list->adds);
    for (uint32_t i = 0; good && i < list->n; i++) {
        const struct zinf_product *p = &list->items[i];
        cJSON *item = p->chosen ? cJSON_CreateObject() : NULL;
        good = !p->chosen || (item && cJSON_AddItemToArray(array, item) &&
                              add_numbers(item, "product", (const uint64_t *)p->key, KEY_NUMBERS) &&
                              add_numbers(item, "algorithm", p->way, WAY_NUMBERS));
    }
    char *text = good && zinf_json_seal(root) ? cJSON_PrintUnformatted(root) : NULL;
    int code = text ? zinf_file_write_atomic(path, text, strlen(text))
                    : zinf_fail(-ENOMEM, "no memory for %s", path);
    cJSON_free(text);
    cJSON_Delete(root);
    return code;
}

static bool has_choices(const struct zinf_products *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].chosen)
            return true;
    return false;
}

int products_write(const struct setup *s, const char *folder)
{
    if (!has_choices(&s->products))
        return 0;
    char *path = zinf_path_join(folder, PRODUCTS_FILE);
    int code = path ? write_list(&s->products, s->products_by, path) : -ENOMEM;
    free(path);
    return code;
}

/* ---- known ones ---- */

/* Choices of known for products of list that have none. */
static void take_over(struct zinf_products *list, const struct zinf_products *known)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct zinf_product *same = find(known, &list->items[i]);
        if (same && !list->items[i].chosen)
            list->items[i] = *same;
    }
}

static int refuse_list(int code)
{
    return zinf_fail(code,
                     "%s: copy " PRODUCTS_FILE " of the output folder or of another checkpoint of "
                     "the same training over it; without the file the library's first proposals "
                     "are taken, and results have other last bits from here on",
                     zinf_error());
}

/* What the training that this one goes on from had, whichever stages this rank has. One that had no
 * list goes on with the library's first proposals: then nothing is timed. */
static int take_run(struct setup *s, const char *own, bool *times)
{
    struct zinf_products known = {0};
    char by[BY_BYTES] = "";
    const char *folder = s->options.products;
    char *path = folder ? zinf_path_join(folder, PRODUCTS_FILE) : NULL;
    int code = path ? read_list(path, own, &known, by) : 0;
    if (code == -ENOENT && *times)
        zinf_log(ZINF_LOG_INFO,
                 "the training that goes on has no " PRODUCTS_FILE ": products are made by the "
                 "library's first proposals, as before");
    *times = *times && code != -ENOENT;
    s->products.adds = folder && code != 1 ? known.adds : *times;
    if (code == 1)
        zinf_log(ZINF_LOG_WARN,
                 "the algorithms in %s were chosen for %s, and this is %s: they are chosen anew, "
                 "so results have other last bits from here on",
                 path, by, own);
    code = code == 1 || code == -ENOENT ? 0 : code ? refuse_list(code) : 0;
    take_over(&s->products, &known);
    for (uint32_t i = 0; !code && i < known.n; i++)
        if (!find(&s->products, &known.items[i]))
            code = add(&s->products, &known.items[i]);
    free(known.items);
    free(path);
    return code;
}

/* NULL: there is no cache. */
static char *cache_path(const char *by, bool make_folder)
{
    char name[48];
    snprintf(name, sizeof name, "products-%016" PRIx64 ".json", XXH3_64bits(by, strlen(by)));
    return zinf_cache_path(name, make_folder);
}

/* A cache that cannot be read or written costs time alone. */
static void read_cache(const char *own, struct zinf_products *cached)
{
    char by[BY_BYTES], *path = cache_path(own, false);
    if (path && read_list(path, own, cached, by))
        cached->n = 0;
    free(path);
}

static void write_cache(struct zinf_products *cached, const struct zinf_products *list,
                        const char *own)
{
    bool grows = false;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].chosen && !find(cached, &list->items[i]))
            grows = !add(cached, &list->items[i]) || grows;
    char *path = grows && cached->n <= MAX_PRODUCTS ? cache_path(own, true) : NULL;
    if (path && write_list(cached, own, path))
        zinf_log(ZINF_LOG_INFO, "%s", zinf_error());
    free(path);
}

static int choose(struct zinf_trainer *t, const char *own)
{
    struct setup *s = &t->setup;
    struct zinf_products cached = {0};
    bool times = s->config->time_products;
    int code = take_run(s, own, &times);
    if (code || !times)
        return code;
    read_cache(own, &cached);
    take_over(&s->products, &cached);
    code = s->device->ops->products_time(t->queues[ZINF_LANE_DEVICE], &s->products);
    if (!code)
        write_cache(&cached, &s->products, own);
    free(cached.items);
    return code;
}

/* ---- ranks ---- */

/* Each rank's list becomes the union of all of them: pipeline stages have different products. */
static int unite(struct setup *s)
{
    struct zinf_net *net = s->mesh.all;
    const uint32_t world = net ? zinf_net_place(net).world : 1;
    int code = 0;
    for (uint32_t r = 0; !code && net && r < world; r++) {
        uint32_t n = s->products.n;
        code = zinf_net_broadcast(net, r, &n, sizeof n);
        struct zinf_product *theirs = code ? NULL : calloc(n + 1, sizeof *theirs);
        if (!code && !theirs)
            code = zinf_fail(-ENOMEM, "no memory for %u products", n);
        if (!code && zinf_net_place(net).rank == r)
            memcpy(theirs, s->products.items, n * sizeof *theirs);
        if (!code)
            code = zinf_net_broadcast(net, r, theirs, n * sizeof *theirs);
        for (uint32_t i = 0; !code && i < n; i++)
            if (!find(&s->products, &theirs[i]))
                code = add(&s->products, &theirs[i]);
        free(theirs);
    }
    return code;
}

/* Rank 0's list, and the name of its GPU and library. */
static int take_from_first(struct setup *s)
{
    struct zinf_net *net = s->mesh.all;
    uint32_t n = s->products.n;
    if (!net)
        return 0;
    int code = zinf_net_broadcast(net, 0, s->products_by, sizeof s->products_by);
    if (!code)
        code = zinf_net_broadcast(net, 0, &n, sizeof n);
    if (!code)
        code = zinf_net_broadcast(net, 0, &s->products.adds, sizeof s->products.adds);
    while (!code && s->products.n < n)
        code = add(&s->products, &(struct zinf_product){.chosen = 0});
    s->products.n = n;
    return code ? code
                : zinf_net_broadcast(net, 0, s->products.items, n * sizeof *s->products.items);
}

/* Only where this rank's device has the bits of a product and a sum apart, which the others have
 * then. */
static int settle_sums(struct zinf_trainer *t)
{
    struct setup *s = &t->setup;
    bool *adds = &s->products.adds;
    const bool may = *adds;
    int code = s->device->ops->products_use(s->device, &s->products);
    if (!code && may)
        code = s->device->ops->products_add(t->queues[ZINF_LANE_DEVICE], &s->products, adds);
    s->sums_by_products = *adds;
    if (!code && *adds)
        zinf_log(ZINF_LOG_INFO, "gradients of weights: products add to sums by themselves");
    else if (!code)
        zinf_log(ZINF_LOG_INFO, "gradients of weights: a kernel adds them to sums, %s",
                 may ? "as products that add have other bits, or were not compared"
                     : "as this training began without a comparison");
    return code;
}

int products_settle(struct zinf_trainer *t)
{
    struct setup *s = &t->setup;
    const struct zinf_device *device = s->device;
    if (!setup_lists_products(s))
        return 0;
    snprintf(s->products_by, sizeof s->products_by, "%s", device->products_by);
    int code = unite(s);
    if (!code && (!s->mesh.all || !zinf_net_place(s->mesh.all).rank))
        code = choose(t, device->products_by);
    if (!code)
        code = take_from_first(s);
    if (!code && strcmp(s->products_by, device->products_by) != 0) {
        zinf_log(ZINF_LOG_WARN,
                 "rank 0 has chosen its algorithms for %s, and this rank is %s, which takes its "
                 "own: results depend on which rank has which samples",
                 s->products_by, device->products_by);
        s->products.adds = s->sums_by_products = false;
        return 0;
    }
    return code ? code : settle_sums(t);
}
