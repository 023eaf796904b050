/* sources: see sources.h. */
#include "train/run/sources.h"

#include <stdlib.h>

int call_sources_init(struct call_sources *s, const struct zinf_decode_shape *shape)
{
    *s = (struct call_sources){.most = shape && shape->sources ? shape->source_rows : 0};
    s->ids = calloc(2 * (size_t)s->most + 1, sizeof *s->ids);
    if (!s->ids)
        return zinf_fail(-ENOMEM, "no memory for %lld tokens", (long long)s->most);
    s->numbers = s->ids + s->most;
    return 0;
}

void call_sources_fini(struct call_sources *s)
{
    free(s->ids);
    *s = (struct call_sources){0};
}

void call_sources_begin(struct call_sources *s)
{
    s->n = 0;
    s->left = s->most;
}

bool call_sources_take(struct call_sources *s, const struct zinf_text *text)
{
    if (text->n_source > s->left)
        return false;
    s->left -= text->n_source;
    return true;
}

void call_sources_add(struct call_sources *s, const struct zinf_text *text, int64_t number)
{
    for (int64_t i = 0; i < text->n_source; i++, s->n++) {
        s->ids[s->n] = text->source[i];
        s->numbers[s->n] = (int32_t)number;
    }
}

void call_sources_show(const struct call_sources *s, struct zinf_decode_rows *rows)
{
    rows->source_ids = s->ids;
    rows->source_numbers = s->numbers;
    rows->n_source = s->n;
}

int call_sources_check(const struct zinf_decode_shape *shape, const struct zinf_text *text,
                       int64_t number)
{
    const int64_t n = text->source ? text->n_source : 0;
    const int64_t least = shape && shape->sources ? 1 : 0;
    const int64_t most = shape && shape->sources ? shape->source_capacity : 0;
    if (!shape || (n >= least && n <= most))
        return 0;
    return zinf_fail(-EINVAL,
                     "text %lld has a source of %lld tokens; there must be from %lld to %lld",
                     (long long)number + 1, (long long)n, (long long)least, (long long)most);
}
