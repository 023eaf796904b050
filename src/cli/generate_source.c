/* generate_source: prompts of an encoder-decoder: what its encoder reads, ended as in training. A
 * text begins with the token that the decoder is fed first, which nobody wants to see. */
#include "cli/generate.h"

#include <stdlib.h>

int generate_source(const struct zinf_session *s, const struct zinf_job *c, struct zinf_tokens *ids,
                    struct zinf_text *text)
{
    int32_t start, end, *first = NULL, *all = NULL;
    int code = job_task_token(s, c, "decoder_start_token_id", &start);
    if (!code)
        code = job_task_token(s, c, "eos_token_id", &end);
    if (code)
        return code;
    bool ends = ids->ids[ids->count - 1] == end;
    first = malloc(sizeof *first);
    all = realloc(ids->ids, (ids->count + 1) * sizeof *all);
    if (all)
        ids->ids = all;
    if (!all || !first) {
        free(first);
        return zinf_fail(-ENOMEM, "no memory for a prompt of %zu tokens", ids->count);
    }
    if (!ends)
        ids->ids[ids->count++] = end;
    *first = start;
    *text = (struct zinf_text){
        .ids = first, .n_prompt = 1, .source = ids->ids, .n_source = (int64_t)ids->count};
    return 0;
}
