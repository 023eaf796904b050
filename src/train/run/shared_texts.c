/* shared_texts: a part of the texts for each rank, by their number; then the new tokens of all
 * parts to all, in pieces of one size, which is that of the largest. */
#include "train/run/shared_texts.h"
#include "train/trainer.h"

#include <stdlib.h>

/* Ranks that have parts of a sequence make each text together. */
static bool are_dealt(const struct setup *s, const struct zinf_generate_options *o)
{
    return data_axis(s)->net && !s->sliced && context_axis(s)->world == 1 &&
           (o->beams.n > 1 || o->sampler.temperature <= 0);
}

static int64_t part_begin(int64_t n_texts, uint32_t rank, uint32_t world)
{
    return n_texts * (int64_t)rank / (int64_t)world;
}

/* A part as numbers: of each text how many tokens are new and why it ended, then these tokens. */
static uint64_t part_numbers(const struct zinf_text *texts, int64_t n)
{
    uint64_t numbers = 0;
    for (int64_t i = 0; i < n; i++)
        numbers += 2 + (uint64_t)texts[i].n_new;
    return numbers;
}

static void pack(const struct zinf_text *texts, int64_t n, int32_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        *to++ = (int32_t)texts[i].n_new;
        *to++ = (int32_t)texts[i].finish;
        memcpy(to, texts[i].ids + texts[i].n_prompt, (size_t)texts[i].n_new * sizeof *to);
        to += texts[i].n_new;
    }
}

static int unpack(struct zinf_text *texts, int64_t n, const int32_t *from)
{
    for (int64_t i = 0; i < n; i++) {
        struct zinf_text *text = &texts[i];
        size_t n_new = (size_t)from[0], all = (size_t)text->n_prompt + n_new;
        int32_t *moved = realloc(text->ids, all * sizeof *moved);
        if (!moved)
            return zinf_fail(-ENOMEM, "no memory for %zu tokens", all);
        text->ids = moved;
        text->n_new = (int64_t)n_new;
        text->finish = (enum zinf_finish)from[1];
        memcpy(moved + text->n_prompt, from + 2, n_new * sizeof *moved);
        from += 2 + n_new;
    }
    return 0;
}

/* [begin, end) are this rank's and made. */
static int share(const struct setup *s, struct zinf_text *texts, int64_t n_texts)
{
    struct zinf_net *net = data_axis(s)->net;
    uint32_t rank = data_axis(s)->rank, world = data_axis(s)->world;
    int64_t begin = part_begin(n_texts, rank, world), end = part_begin(n_texts, rank + 1, world);
    int64_t most = (int64_t)part_numbers(texts + begin, end - begin);
    int code = zinf_net_max(net, &most, 1);
    size_t piece = code ? 0 : (size_t)most;
    int32_t *all = code ? NULL : calloc(world * piece + 1, sizeof *all);
    if (!code && !all)
        code = zinf_fail(-ENOMEM, "no memory for %zu tokens", world * piece);
    if (!code) {
        pack(texts + begin, end - begin, all + rank * piece);
        code = zinf_net_gather(net, all + rank * piece, all, piece * sizeof *all);
    }
    for (uint32_t r = 0; !code && r < world; r++)
        if (r != rank)
            code = unpack(texts + part_begin(n_texts, r, world),
                          part_begin(n_texts, r + 1, world) - part_begin(n_texts, r, world),
                          all + r * piece);
    free(all);
    return code;
}

int make_shared_texts(struct zinf_trainer *trainer, const struct zinf_generate_options *options,
                      struct zinf_text *texts, int64_t n_texts)
{
    const struct setup *s = &trainer->setup;
    struct zinf_generate_speed speed;
    if (!are_dealt(s, options))
        return zinf_generate(trainer, options, texts, n_texts, &speed);
    int64_t begin = part_begin(n_texts, data_axis(s)->rank, data_axis(s)->world);
    int64_t end = part_begin(n_texts, data_axis(s)->rank + 1, data_axis(s)->world);
    int code = trainer_settle(trainer); /* all ranks together, those without a text too */
    if (!code && end > begin)
        code = zinf_generate(trainer, options, texts + begin, end - begin, &speed);
    if (!code)
        code = share(s, texts, n_texts);
    return code;
}
