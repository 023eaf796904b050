/* masking: special tokens by their names in the tokenizer's folder, and draws by position. */
#include "text/samples/masking.h"

#include "base/random.h"
#include "text/chat/chat_template.h"
#include "text/samples/samples.h"

#include <stdlib.h>
#include <xxhash.h>

#define STREAM 0x6d61736b696e67u /* of the seed: apart from dropout and the order of windows */

/* The one token that a text is; -1: it is none. */
static int token_of(const struct zinf_tokenizer *tokenizer, const char *text, int32_t *id)
{
    struct zinf_tokens ids = {0};
    int code = text && *text ? zinf_tokenizer_encode(tokenizer, text, strlen(text), &ids) : 0;
    *id = !code && ids.count == 1 ? ids.ids[0] : -1;
    zinf_tokens_free(&ids);
    return code;
}

static int find_named(const struct zinf_tokenizer *tokenizer, const char *folder, const char *key,
                      int32_t *id)
{
    char *text = NULL;
    int code = chat_special(folder, key, &text);
    if (!code)
        code = token_of(tokenizer, text, id);
    free(text);
    return code;
}

/* By its name, or, where the folder names none, as published tokenizers write it. */
static int find_mask(struct zinf_masking *m, const struct zinf_tokenizer *tokenizer,
                     const char *folder)
{
    static const char *const usual[] = {"[MASK]", "<mask>"};
    int code = find_named(tokenizer, folder, "mask_token", &m->mask);
    for (int i = 0; !code && m->mask < 0 && i < 2; i++)
        code = token_of(tokenizer, usual[i], &m->mask);
    return code || m->mask >= 0
               ? code
               : zinf_fail(
                     -EINVAL,
                     "%s: the tokenizer has no mask token: tokenizer_config.json has no "
                     "mask_token, and [MASK] and <mask> are no tokens: name one as mask_token",
                     folder);
}

int zinf_masking_open(struct zinf_masking *m, const struct zinf_tokenizer *tokenizer,
                      const char *folder, double probability, uint64_t seed)
{
    static const char *const keys[] = {"cls_token", "sep_token", "pad_token",
                                       "bos_token", "eos_token", "unk_token"};
    *m = (struct zinf_masking){
        .probability = probability, .seed = seed, .vocab = zinf_tokenizer_vocab(tokenizer)};
    int code = find_mask(m, tokenizer, folder);
    m->special[m->n_special++] = m->mask;
    for (size_t i = 0; !code && i < sizeof keys / sizeof *keys; i++) {
        int32_t id;
        code = find_named(tokenizer, folder, keys[i], &id);
        if (!code && id >= 0)
            m->special[m->n_special++] = id;
    }
    return code;
}

static bool is_special(const struct zinf_masking *m, int32_t id)
{
    for (int i = 0; i < m->n_special; i++)
        if (m->special[i] == id)
            return true;
    return false;
}

void zinf_masking_apply(const struct zinf_masking *m, const struct zinf_masked *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const uint32_t counter[] = {i, (uint32_t)a->sample, (uint32_t)(a->sample >> 32),
                                    (uint32_t)a->epoch};
        const int32_t id = a->ids[i];
        uint32_t drawn[4];
        a->targets[i] = -1;
        if ((a->marks && !(a->marks[i] & ZINF_MARK_COUNTS)) || is_special(m, id))
            continue;
        zinf_philox(counter, m->seed ^ STREAM, drawn);
        if ((double)zinf_uniform(drawn[0]) >= m->probability)
            continue;
        a->targets[i] = id;
        const float how = zinf_uniform(drawn[1]);
        if (how < 0.8f)
            a->ids[i] = m->mask;
        else if (how < 0.9f)
            a->ids[i] = (int32_t)((uint64_t)drawn[2] * m->vocab >> 32);
    }
}

uint64_t zinf_masking_key(const struct zinf_masking *m, uint64_t key)
{
    const struct {
        double probability;
        uint64_t seed;
        int32_t mask;
        uint32_t vocab;
    } decides = {m->probability, m->seed, m->mask, m->vocab};
    return m->probability > 0 ? XXH3_64bits_withSeed(&decides, sizeof decides, key) : key;
}
