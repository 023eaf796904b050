/* product_list: the products that a device was asked about, and the algorithms that it was given
 * for them. */
#include "kernels/cuda/matmul.h"

#include <stdlib.h>

/* An address that is a multiple of it is as good as any to the library's fast kernels. */
enum { WELL_ALIGNED = 16 };

_Static_assert(sizeof(struct plan_key) <= sizeof((struct zinf_product *)0)->key &&
                   sizeof(cublasLtMatmulAlgo_t) == sizeof((struct zinf_product *)0)->way,
               "a product's numbers hold a key and an algorithm");

static struct zinf_product *find(const struct zinf_products *list, const struct plan_key *key)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!memcmp(list->items[i].key, key, sizeof *key))
            return &list->items[i];
    return NULL;
}

void cuda_products_note(struct zinf_device *device, struct zinf_products *list)
{
    ((struct cuda_device *)device)->noted = list;
}

int note_product(const struct cuda_device *device, const struct plan_key *key)
{
    struct zinf_products *list = device->noted;
    if (find(list, key))
        return 0;
    if (list->n == list->room) {
        uint32_t room = list->room ? 2 * list->room : 32;
        struct zinf_product *items = realloc(list->items, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        list->items = items;
        list->room = room;
    }
    struct zinf_product *item = &list->items[list->n++];
    memset(item, 0, sizeof *item);
    memcpy(item->key, key, sizeof *key);
    return 0;
}

int cuda_products_use(struct zinf_device *device, const struct zinf_products *list)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    const size_t bytes = list->n * sizeof *list->items;
    free(cuda->ways.items);
    cuda->ways = (struct zinf_products){.items = malloc(bytes + 1), .n = list->n, .room = list->n};
    if (!cuda->ways.items) {
        cuda->ways.n = 0;
        return zinf_fail(-ENOMEM, "no memory for %u algorithms", list->n);
    }
    if (bytes)
        memcpy(cuda->ways.items, list->items, bytes);
    return 0;
}

const cublasLtMatmulAlgo_t *chosen_algorithm(const struct cuda_device *device,
                                             const struct plan_key *key)
{
    struct plan_key asked = *key;
    int64_t *const aligns[] = {&asked.align_a, &asked.align_b, &asked.align_c};
    for (int i = 0; i < 3; i++)
        *aligns[i] = *aligns[i] < WELL_ALIGNED ? *aligns[i] : WELL_ALIGNED;
    asked.with_bias = asked.with_bias < WELL_ALIGNED ? asked.with_bias : WELL_ALIGNED;
    const struct zinf_product *found = find(&device->ways, &asked);
    return found && found->chosen ? (const void *)found->way : NULL;
}
