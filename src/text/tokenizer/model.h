/*
 * model: makes ids of a piece by byte-pair merges, the best path of unigrams, WordPiece's longest
 * match, or as a whole word. Read-only once filled; each thread has memory of its own.
 */
#ifndef ZINF_TEXT_MODEL_H
#define ZINF_TEXT_MODEL_H

#include "text/internal.h"

/* ---- bpe.c ---- */

#define TEXT_MAX_AFFIX 32 /* most bytes of a prefix or suffix */
struct text_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    uint32_t id; /* UINT32_MAX: the slot is free */
};
struct text_bpe {
    struct text_merge *merges; /* open addressing */
    size_t n_slots;            /* power of two, at most half full */
    uint32_t n_merges;
    bool alphabet;             /* the vocabulary is written in the byte-level alphabet */
    int32_t byte_ids[256];     /* id of each single byte; -1: not in the vocabulary */
    int32_t fallback_ids[256]; /* ids of <0x00> and so on, with byte_fallback; -1: none */
    int32_t unknown;           /* -1: what is not in the vocabulary is left out */
    bool fuse_unknown, ignore_merges, byte_fallback; /* as in a tokenizer.json */
    char *prefix, *suffix; /* of continuing symbols; of a piece's last symbol; or NULL */
};
/* alphabet, prefix and suffix must be set first. */
int text_bpe_init(struct text_bpe *bpe, const struct text_vocab *vocab, size_t n_merges);
void text_bpe_fini(struct text_bpe *bpe);
/* Adds a merge, in order of rank, written as in the file. */
int text_bpe_add_merge(struct text_bpe *bpe, const struct text_vocab *vocab, const char *left,
                       size_t left_bytes, const char *right, size_t right_bytes);
/* Whether pieces may be cut before any mark that follows another character: no merge has the mark
 * alone, or at the beginning of its right part with a left part that does not end in it. */
bool text_bpe_cuts_at(const struct text_bpe *bpe, const struct text_vocab *vocab, const char *mark);

/* ---- trie.c ---- */

/* Strings by their bytes. A node's children are consecutive, sorted by byte. */
struct text_trie {
    uint32_t *children; /* [n_nodes + 1]: node i has children [children[i], children[i + 1]) */
    uint8_t *labels;    /* [n_nodes]: the byte that leads to a node */
    int32_t *ids;       /* [n_nodes] id of the string that ends here, or -1 */
    uint32_t root[256]; /* the root's child for each byte; 0: none */
    uint32_t n_nodes;
};
struct text_trie_string {
    const char *bytes;
    uint32_t count;
    int32_t id;
};
/* Builds a trie; sorts strings. Of equal strings the last one counts. Empty strings are left out.
 */
int text_trie_build(struct text_trie *trie, struct text_trie_string *strings, size_t n);
void text_trie_fini(struct text_trie *trie);
/* The child of a node for a byte; 0: none. Node 0 is the root. */
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
    uint32_t continued; /* node of the prefix of continuing pieces; UINT32_MAX: none */
    int64_t longest;    /* most characters of a word; a longer one is unknown */
    int32_t unknown;    /* -1: text that needs it is an error */
    char *unknown_name; /* for messages */
};
void text_wordpiece_fini(struct text_wordpiece *wordpiece);

/* ---- scratch ---- */

struct text_symbol;
struct text_candidate;
struct text_path;
/* Memory of one thread. It also keeps known pieces with their ids, up to a limit. */
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
