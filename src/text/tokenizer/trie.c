/*
 * trie: strings by their bytes. It is built breadth first from sorted strings, so that the children
 * of a node stand in a row and a node is one number; 250,000 strings take some 9 bytes a node.
 */
#include "text/tokenizer/model.h"

#include <stdlib.h>

struct range { /* strings that share the bytes up to a node */
    uint32_t first, end;
};

static int compare_strings(const void *left, const void *right)
{
    const struct text_trie_string *a = left, *b = right;
    uint32_t n = a->count < b->count ? a->count : b->count;
    int order = memcmp(a->bytes, b->bytes, n);
    if (order)
        return order;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Appends the children of a node at depth, whose strings are range. */
static uint32_t add_children(struct text_trie *trie, struct range *ranges,
                             const struct text_trie_string *strings, struct range range,
                             uint32_t depth)
{
    uint32_t n = 0;
    while (range.first < range.end && strings[range.first].count <= depth)
        range.first++;
    while (range.first < range.end) {
        uint8_t label = (uint8_t)strings[range.first].bytes[depth];
        uint32_t end = range.first, node = trie->n_nodes + n++;
        trie->ids[node] = -1;
        for (; end < range.end && (uint8_t)strings[end].bytes[depth] == label; end++)
            if (strings[end].count == depth + 1)
                trie->ids[node] = strings[end].id;
        trie->labels[node] = label;
        ranges[node] = (struct range){range.first, end};
        range.first = end;
    }
    return n;
}

int text_trie_build(struct text_trie *trie, struct text_trie_string *strings, size_t n)
{
    size_t most = 1;
    for (size_t i = 0; i < n; i++)
        most += strings[i].count;
    if (most > UINT32_MAX - 1)
        return zinf_fail(-EFBIG, "a vocabulary of %zu bytes", most);
    if (n)
        qsort(strings, n, sizeof *strings, compare_strings);
    struct range *ranges = malloc(most * sizeof *ranges);
    trie->children = malloc((most + 1) * sizeof *trie->children);
    trie->labels = malloc(most);
    trie->ids = malloc(most * sizeof *trie->ids);
    if (!ranges || !trie->children || !trie->labels || !trie->ids) {
        free(ranges);
        return zinf_fail(-ENOMEM, "no memory for a vocabulary of %zu bytes", most);
    }
    trie->n_nodes = 1;
    trie->ids[0] = -1;
    ranges[0] = (struct range){0, (uint32_t)n};
    uint32_t depth = 0, level_end = 1;
    for (uint32_t node = 0; node < trie->n_nodes; node++) {
        if (node == level_end) {
            depth++;
            level_end = trie->n_nodes;
        }
        trie->children[node] = trie->n_nodes;
        trie->n_nodes += add_children(trie, ranges, strings, ranges[node], depth);
        trie->children[node + 1] = trie->n_nodes;
    }
    free(ranges);
    for (uint32_t child = 1; child < trie->children[1]; child++)
        trie->root[trie->labels[child]] = child;
    return 0;
}

void text_trie_fini(struct text_trie *trie)
{
    free(trie->children);
    free(trie->labels);
    free(trie->ids);
    *trie = (struct text_trie){0};
}

uint32_t text_trie_step(const struct text_trie *trie, uint32_t node, uint8_t byte)
{
    if (!node)
        return trie->root[byte];
    uint32_t low = trie->children[node], high = trie->children[node + 1];
    while (high - low > 8) {
        uint32_t middle = low + (high - low) / 2;
        if (trie->labels[middle] <= byte)
            low = middle;
        else
            high = middle;
    }
    for (; low < high; low++)
        if (trie->labels[low] == byte)
            return low;
    return 0;
}
