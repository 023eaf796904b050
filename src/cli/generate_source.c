/* generate_source: prompts of an encoder-decoder: what its encoder reads, framed as in training. A
 * text begins with the token that the decoder is fed first, which nobody wants to see. */
#include "cli/generate.h"

#include <stdlib.h>

/* ids: the prompt's, and then those of its source. */
int generate_source(const struct cli_session *s, const struct cli_common *c,
                    struct zinf_tokens *ids, struct zinf_text *text)
{
    struct zinf_tokens framed = {0};
    int32_t start, end;
    int code = cli_task_token(s, c, "decoder_start_token_id", &start);
    if (!code)
        code = cli_task_token(s, c, "eos_token_id", &end);
    if (!code)
        code = zinf_tokenizer_frame(s->tokenizer, ids, NULL, &framed, NULL);
    bool ends = !code && framed.count && framed.ids[framed.count - 1] == end;
    int32_t *all = code ? NULL : realloc(framed.ids, (framed.count + 1) * sizeof *all);
    int32_t *first = code ? NULL : malloc(sizeof *first);
    if (all)
        framed.ids = all;
    if (!code && (!all || !first))
        code = zinf_fail(-ENOMEM, "no memory for a prompt of %zu tokens", framed.count);
    if (code) {
        free(first);
        zinf_tokens_free(&framed);
        return code;
    }
    if (!ends)
        framed.ids[framed.count++] = end;
    *first = start;
    zinf_tokens_free(ids);
    *ids = framed;
    *text = (struct zinf_text){
        .ids = first, .n_prompt = 1, .source = ids->ids, .n_source = (int64_t)ids->count};
    return 0;
}
