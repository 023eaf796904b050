/* score: {"predicted", "reference"} in JSON lines on standard input to their figures:
 * {"plain": [rouge1, rouge2, rougeL, rougeLsum], "stemmed": [...], "bleu"}. For
 * tests/compare/against_metrics.py. */
#include "base/json.h"
#include "metrics/metrics.h"

#include <stdio.h>
#include <stdlib.h>

static int print_rouge(const char *name, const char *predicted, const char *reference, bool stem)
{
    struct zinf_rouge r;
    int code = zinf_rouge(predicted, reference, stem, &r);
    if (!code)
        printf("\"%s\": [%.12g, %.12g, %.12g, %.12g], ", name, r.rouge1, r.rouge2, r.l, r.lsum);
    return code;
}

static int score(const char *line, size_t bytes)
{
    cJSON *row = NULL;
    struct zinf_bleu bleu = {0};
    int code = zinf_json_parse(line, bytes, "standard input", ZINF_JSON_STRICT, &row);
    const char *predicted = cJSON_GetStringValue(cJSON_GetObjectItem(row, "predicted"));
    const char *reference = cJSON_GetStringValue(cJSON_GetObjectItem(row, "reference"));
    if (!code && (!predicted || !reference))
        code = zinf_fail(-EINVAL, "a line has no \"predicted\" or no \"reference\"");
    if (!code)
        code = zinf_bleu_add(&bleu, predicted, reference);
    if (!code) {
        putchar('{');
        code = print_rouge("plain", predicted, reference, false);
    }
    if (!code)
        code = print_rouge("stemmed", predicted, reference, true);
    if (!code)
        printf("\"bleu\": %.12g}\n", zinf_bleu_score(&bleu, true));
    cJSON_Delete(row);
    return code;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    int code = 0;
    while (!code && (bytes = getline(&line, &capacity, stdin)) > 0)
        code = score(line, (size_t)bytes);
    if (code)
        fprintf(stderr, "score: %s\n", zinf_error());
    free(line);
    return code != 0;
}
