/*
 * shared: stores data that many operations have in common, such as lists of operands, once. A
 * program has many operations but few different lists, so the memory of operations does not grow
 * with what they work on.
 */
#include "offload/builder.h"

#include <stdlib.h>
#include <xxhash.h>

#define BLOCK_BYTES 16384
#define FIRST_CAPACITY 64 /* of the table; a power of two */

struct item {
    const void *data;
    size_t bytes;
};
struct block {
    struct block *before;
    _Alignas(16) char data[];
};
struct zinf_shared {
    struct block *blocks; /* list, the newest first */
    size_t left;          /* bytes left in the newest block */
    char *next;
    struct item *table;         /* [capacity] hash table; data NULL: free */
    uint32_t n_items, capacity; /* at most half of the table is used */
    uint64_t bytes;             /* of blocks */
};

struct zinf_shared *zinf_shared_create(void)
{
    return calloc(1, sizeof(struct zinf_shared));
}

void zinf_shared_destroy(struct zinf_shared *s)
{
    while (s && s->blocks) {
        struct block *before = s->blocks->before;
        free(s->blocks);
        s->blocks = before;
    }
    zinf_shared_end(s);
    free(s);
}

void zinf_shared_end(struct zinf_shared *s)
{
    if (!s)
        return;
    free(s->table);
    s->table = NULL;
    s->capacity = s->n_items = 0;
}

uint64_t zinf_shared_bytes(const struct zinf_shared *s)
{
    return s ? s->bytes + s->capacity * sizeof *s->table : 0;
}

/* The entry of these bytes in the table, or the free one where they belong. */
static struct item *find(const struct zinf_shared *s, const void *data, size_t bytes)
{
    uint32_t at = (uint32_t)XXH3_64bits(data, bytes) & (s->capacity - 1);
    while (s->table[at].data &&
           (s->table[at].bytes != bytes || memcmp(s->table[at].data, data, bytes) != 0))
        at = (at + 1) & (s->capacity - 1);
    return &s->table[at];
}

static bool grow(struct zinf_shared *s)
{
    struct zinf_shared larger = *s;
    larger.capacity = s->capacity ? 2 * s->capacity : FIRST_CAPACITY;
    larger.table = calloc(larger.capacity, sizeof *larger.table);
    if (!larger.table)
        return false;
    for (uint32_t i = 0; i < s->capacity; i++)
        if (s->table[i].data)
            *find(&larger, s->table[i].data, s->table[i].bytes) = s->table[i];
    free(s->table);
    *s = larger;
    return true;
}

static char *take(struct zinf_shared *s, size_t bytes)
{
    const size_t need = zinf_align_up(bytes, _Alignof(max_align_t));
    if (need > s->left) {
        const size_t room = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        struct block *block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        block->before = s->blocks;
        s->blocks = block;
        s->next = block->data;
        s->left = room;
        s->bytes += sizeof *block + room;
    }
    char *data = s->next;
    s->next += need;
    s->left -= need;
    return data;
}

const void *zinf_shared_keep(struct zinf_shared *s, const void *data, size_t bytes)
{
    if (2 * (s->n_items + 1) > s->capacity && !grow(s))
        return NULL;
    struct item *item = find(s, data, bytes);
    if (item->data)
        return item->data;
    char *kept = take(s, bytes);
    if (!kept)
        return NULL;
    memcpy(kept, data, bytes);
    *item = (struct item){kept, bytes};
    s->n_items++;
    return kept;
}
