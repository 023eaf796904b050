/*
 * fit: how long the windows of samples are that have a source, a target or a label. Where nobody
 * says, they are those of the longest in the data, so that no row computes more padding than that
 * one needs; or of the longest but for a share that is cut (option length-percentile).
 */
#include "api/session.h"

#define MULTIPLE 8

uint32_t job_fit_rounded(uint32_t n, uint32_t most)
{
    const uint64_t whole = zinf_align_up(n ? n : 1, MULTIPLE);
    return whole < most ? (uint32_t)whole : most;
}

int job_fit(const struct zinf_job *c, struct zinf_samples_options *o, struct zinf_samples **samples)
{
    const double percent = c->task.length_percentile > 0 ? c->task.length_percentile : 100;
    const uint32_t foretold = o->unlabelled ? 0 : 1; /* the last id is a target alone */
    uint32_t seq, source;
    int code = zinf_samples_percentile(*samples, percent, &seq, &source);
    if (code)
        return code;
    seq = c->seq_len ? o->seq_len : job_fit_rounded(seq - foretold, o->seq_len);
    source = c->source_len ? o->source_len : job_fit_rounded(source, o->source_len);
    if (seq == o->seq_len && source == o->source_len)
        return 0;
    zinf_samples_close(*samples);
    *samples = NULL;
    o->seq_len = seq;
    o->max_ids = seq + foretold;
    o->source_len = source;
    return zinf_samples_open(samples, o);
}

int job_fit_cut(const struct zinf_session *s, enum zinf_cut *cut, uint32_t *front)
{
    struct zinf_tokens ids = {0}, framed = {0};
    int code = zinf_tokenizer_encode(s->tokenizer, "a", 1, &ids);
    *cut = s->job.truncate;
    if (!code)
        code = zinf_tokenizer_frame(s->tokenizer, &ids, NULL, &framed, NULL);
    *front = 0;
    while (!code && ids.count && *front < framed.count && framed.ids[*front] != ids.ids[0])
        ++*front;
    zinf_tokens_free(&ids);
    zinf_tokens_free(&framed);
    return code;
}

void job_fit_say(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                 const char *what)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    if (f->n_long)
        zinf_log(ZINF_LOG_WARN, "%llu of %llu rows are too long and left out (--truncate drop)",
                 (unsigned long long)f->n_long, (unsigned long long)f->n_rows);
    if (f->n_cut)
        zinf_log(ZINF_LOG_WARN,
                 "%llu of %llu %s have more than %u tokens and are cut, by %llu tokens: "
                 "--seq-len says how long they may be",
                 (unsigned long long)f->n_cut, (unsigned long long)f->n_samples, what, o->seq_len,
                 (unsigned long long)f->n_ids_cut);
    if (f->n_sources_cut)
        zinf_log(ZINF_LOG_WARN,
                 "%llu of %llu sources have more than %u tokens and are cut, by %llu tokens: "
                 "--source-len says how long they may be",
                 (unsigned long long)f->n_sources_cut, (unsigned long long)f->n_samples,
                 o->source_len, (unsigned long long)f->n_source_ids_cut);
}
