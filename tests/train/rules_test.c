/* rules: which tokens may follow a text, against transformers' logits processors
 * (tests/fixtures/make_rules.py). */
#include "base/json.h"
#include "tap.h"
#include "train/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VOCAB = 12, MOST = 64 };

static int64_t read_list(const cJSON *list, int32_t *out)
{
    const cJSON *item;
    int64_t n = 0;
    cJSON_ArrayForEach(item, list) out[n++] = item->valueint;
    return n;
}

static int64_t number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    return item ? item->valueint : 0;
}

static bool same(const cJSON *c)
{
    int32_t ids[MOST], ends[MOST], suppressed[MOST], words[MOST], left[MOST];
    float logits[VOCAB];
    const cJSON *word, *begin = cJSON_GetObjectItem(c, "forced_bos_token_id"),
                       *end = cJSON_GetObjectItem(c, "forced_eos_token_id");
    struct zinf_word_rules rules = {
        .suppress_tokens = suppressed,
        .n_suppress_tokens = read_list(cJSON_GetObjectItem(c, "suppress_tokens"), suppressed),
        .bad_words = words,
        .min_length = number(c, "min_length"),
        .min_new_tokens = number(c, "min_new_tokens"),
        .forces_begin = begin,
        .forces_end = end,
        .forced_begin = (int32_t)number(c, "forced_bos_token_id"),
        .forced_end = (int32_t)number(c, "forced_eos_token_id"),
    };
    cJSON_ArrayForEach(word, cJSON_GetObjectItem(c, "bad_words_ids"))
    {
        words[rules.n_bad_words] = cJSON_GetArraySize(word);
        rules.n_bad_words += 1 + read_list(word, words + rules.n_bad_words + 1);
    }
    struct zinf_word_place place = {.ids = ids, .most_new = number(c, "most_new"), .ends = ends};
    place.n = read_list(cJSON_GetObjectItem(c, "ids"), ids);
    place.n_new = place.n - number(c, "prompt");
    place.n_ends = (int)read_list(cJSON_GetObjectItem(c, "ends"), ends);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)i;
    zinf_sample_apply_rules(&rules, &place, logits, VOCAB);
    const int64_t n = read_list(cJSON_GetObjectItem(c, "left"), left);
    int64_t at = 0;
    for (int i = 0; i < VOCAB; i++)
        if (isfinite(logits[i]) && (at >= n || left[at++] != i))
            return false;
    return at == n;
}

static void test_what_may_follow(void)
{
    char path[1024];
    cJSON *all = NULL;
    const cJSON *c;
    int n = 0;
    snprintf(path, sizeof path, "%s/tests/fixtures/rules.json", getenv("SRCDIR"));
    CHECKF(!zinf_json_read_file(path, 1 << 24, ZINF_JSON_STRICT, &all), "%s", zinf_error());
    cJSON_ArrayForEach(c, all)
    {
        CHECKF(same(c), "case %d", n);
        n++;
    }
    CHECK(n == 400);
    cJSON_Delete(all);
}

int main(void)
{
    TAP_RUN(test_what_may_follow);
    return tap_done();
}
