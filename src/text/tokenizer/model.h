/*
 * model: what makes ids of a piece: byte-pair merges, the best path of unigrams, the longest match
 * of WordPiece, or a whole word. Read-only once filled; each thread has scratch of its own.
 */
#ifndef ZINF_TEXT_MODEL_H
#define ZINF_TEXT_MODEL_H

#include "text/internal.h"

/* ---- bpe.c ---- */

#define TEXT_MAX_AFFIX 32 /* bytes of a prefix or suffix */
struct text_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    uint32_t id; /* UINT32_MAX: free slot */
};
struct text_bpe {
    struct text_merge *merges; /* open addressing */
    size_t n_slots;            /* power of two, at most half full */
    uint32_t n_merges;
    bool alphabet;             /* the vocabulary was spelled in the byte-level alphabet */
    int32_t byte_ids[256];     /* of one byte alone; -1: not in the vocabulary */
    int32_t fallback_ids[256]; /* <0x00> and so on, with byte_fallback; -1: none */
    int32_t unknown;           /* -1: what is outside the vocabulary is left out */
    bool fuse_unknown, ignore_merges, byte_fallback;
    char *prefix, *suffix; /* of continuing symbols, of the last symbol of a piece; or NULL */
};
/* alphabet, prefix and suffix must be set before. */
int text_bpe_init(struct text_bpe *bpe, const struct text_vocab *vocab, size_t n_merges);
void text_bpe_fini(struct text_bpe *bpe);
/* Merges come in the order of their rank, spelled as the file spells them. */
int text_bpe_add_merge(struct text_bpe *bpe, const struct text_vocab *vocab, const char *left,
                       size_t left_bytes, const char *right, size_t right_bytes);
/* Whether no merge has mark alone or at the beginning of its right part behind something that does
 * not end in mark: then a piece may be cut before any mark that follows something else. */
bool text_bpe_cuts_at(const struct text_bpe *bpe, const struct text_vocab *vocab, const char *mark);

/* ---- trie.c ---- */

/* Strings by their bytes; a node's children stand in a row, by byte. */
struct text_trie {
    uint32_t *children; /* [n_nodes + 1]: node i has children [children[i], children[i + 1]) */
    uint8_t *labels;    /* [n_nodes]: the byte that leads to a node */
    int32_t *ids;       /* [n_nodes]; -1: no string ends here */
    uint32_t root[256]; /* the root's child by byte; 0: none */
    uint32_t n_nodes;
};
struct text_trie_string {
    const char *bytes;
    uint32_t count;
    int32_t id;
};
/* Sorts strings. Of equal ones the last given is meant. Empty strings are left out. */
int text_trie_build(struct text_trie *trie, struct text_trie_string *strings, size_t n);
void text_trie_fini(struct text_trie *trie);
/* The node that byte leads to from node, 0: none. Node 0 is the root. */
uint32_t text_trie_step(const struct text_trie *trie, uint32_t node, uint8_t byte);

/* ---- unigram.c ---- */

struct text_unigram {
    struct text_trie trie;
    double *scores; /* [vocab.size] */
    double unknown_score;
    int32_t unknown; /* -1: text that needs it is an error */
    bool byte_fallback;
    int32_t fallback_ids[256];
};
void text_unigram_fini(struct text_unigram *unigram);

/* ---- wordpiece.c ---- */

struct text_wordpiece {
    struct text_trie trie;
    uint32_t continued; /* the node of the prefix of continuing pieces; UINT32_MAX: there is none */
    int64_t longest;    /* characters of a word; a longer one is unknown */
    int32_t unknown;    /* -1: text that needs it is an error */
    char *unknown_name; /* for the message */
};
void text_wordpiece_fini(struct text_wordpiece *wordpiece);

/* ---- scratch ---- */

struct text_symbol;
struct text_candidate;
struct text_path;
/* Of one thread. Known pieces and their ids are kept, up to a bound. */
struct text_scratch {
    struct text_symbol *symbols;
    struct text_candidate *heap;
    size_t capacity; /* of both, in bytes of a piece */
    struct text_path *paths;
    size_t n_paths;
    struct text_cache *cache;
};
int text_scratch_create(struct text_scratch **out);
void text_scratch_destroy(struct text_scratch *scratch);

int text_bpe_encode(const struct text_bpe *bpe, const struct text_vocab *vocab, const char *piece,
                    size_t bytes, struct text_scratch *scratch, struct zinf_tokens *tokens);
int text_unigram_encode(const struct text_unigram *unigram, const struct text_vocab *vocab,
                        const char *piece, size_t bytes, struct text_scratch *scratch,
                        struct zinf_tokens *tokens);
int text_wordpiece_encode(const struct text_wordpiece *wordpiece, const char *piece, size_t bytes,
                          struct zinf_tokens *tokens);

#endif
