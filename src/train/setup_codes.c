/*
 * setup_codes: which parameters can go to the device in 8 bits each. Of zinf.matmul_type "fp8"
 * these are the matrices that stages multiply with as 8-bit floats and read in no other way:
 * rounded on their way, they give the same products. As for adapters, which they are is learnt from
 * the stages, whose code is run without a queue.
 *
 * An image is made of a whole unit's parameters: a matrix has one scale, that of its largest
 * number, which is known once all sub-groups that it is cut into, of all ranks, are updated. Where
 * parameters are in RAM the first fetch after an update makes the image, which is kept there until
 * the next update. On a drive images of units that the rank has whole lie beside the parameters:
 * those of frozen units are made when these are loaded, those of trained ones by updates, if the
 * plan finds that worth the writing. Other fetches make an image each.
 */
#include "train/setup.h"

#include <stdlib.h>

struct seeing {
    struct setup *s;
    const struct zinf_stage *stage;
    bool **coded; /* [n_units][n_tensors] */
};

/* A tensor of a frozen unit that is trained is another unit's. */
static void mark(const struct seeing *p, uint32_t unit, int tensor)
{
    const struct zinf_tensor *t = &p->s->graph->units[unit].tensors[tensor];
    p->coded[unit][tensor] =
        t->form == ZINF_FORM_PLAIN && !t->moved && t->elems % ZINF_FLOAT8_RUN_ELEMS == 0;
}

static void see(void *seer, uint32_t unit, int tensor)
{
    const struct seeing *p = seer;
    const struct zinf_stage *stage = p->stage;
    if (unit < stage->units.n)
        mark(p, stage->units.at[unit], tensor);
    else if (!p->coded[stage->sweep.at[0]][tensor])
        for (uint32_t i = 0; i < stage->sweep.n; i++)
            mark(p, stage->sweep.at[i], tensor);
}

/* A norm of a weight is that of the weight as it is. */
static bool has_magnitudes(const struct zinf_graph *g)
{
    bool has = false;
    for (uint32_t i = 0; i < g->n_adapted; i++)
        has |= g->adapted[i].has_magnitude;
    return has;
}

static void add_run(struct zinf_float8_image *image, uint64_t to, uint64_t n, bool coded)
{
    image->runs[image->n_runs++] =
        (struct zinf_float8_run){.from = image->bytes, .to = to, .n = n, .coded = coded};
    image->bytes += n * (coded ? 1 : sizeof(uint16_t));
    image->most = n > image->most ? n : image->most;
}

/* The first matrix from there on that is coded; NULL: there is none. */
static const struct zinf_tensor *next_coded(const struct zinf_unit *u, const bool *coded,
                                            uint64_t from)
{
    const struct zinf_tensor *next = NULL;
    for (uint32_t t = 0; t < u->n_tensors; t++)
        if (coded[t] && u->tensors[t].offset >= from &&
            (!next || u->tensors[t].offset < next->offset))
            next = &u->tensors[t];
    return next;
}

/* Matrices as codes, what lies between them as it is. Runs are at most one more than two for each
 * matrix; where they go is known once their number is. */
static int make_image(const struct setup *s, uint32_t unit, const bool *coded)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    struct zinf_float8_image *image = &s->images[unit];
    const struct zinf_tensor *tensor = next_coded(u, coded, 0);
    uint64_t end = 0;
    if (!tensor || u->image_bytes)
        return 0;
    image->runs = calloc(2 * (size_t)u->n_tensors + 1, sizeof *image->runs);
    if (!image->runs)
        return zinf_fail(-ENOMEM, "no memory for how parameters go to the device");
    for (; tensor; tensor = next_coded(u, coded, end)) {
        if (tensor->offset > end)
            add_run(image, end, tensor->offset - end, false);
        add_run(image, tensor->offset, tensor->elems, true);
        end = tensor->offset + tensor->elems;
    }
    if (s->layout.units[unit].padded_elems > end)
        add_run(image, end, s->layout.units[unit].padded_elems - end, false);
    const uint64_t head = zinf_float8_head(image->n_runs);
    for (uint32_t r = 0; r < image->n_runs; r++)
        image->runs[r].from += head;
    image->bytes = zinf_align_up(image->bytes + head, ZINF_MEMORY_ALIGN);
    s->image_bytes[unit] = image->bytes;
    return 0;
}

static int find(struct setup *s, bool **coded)
{
    struct seeing p = {.s = s, .coded = coded};
    int code = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        coded[u] = calloc(s->graph->units[u].n_tensors + 1, sizeof *coded[u]);
        if (!coded[u])
            return zinf_fail(-ENOMEM, "no memory to look at a model's matrices");
    }
    for (uint32_t i = 0; !code && i < s->graph->n_stages; i++) {
        p.stage = &s->graph->stages[i];
        code = zinf_stage_linears(s->graph, i, true, see, &p);
    }
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        code = make_image(s, u, coded[u]);
    return code;
}

int setup_find_codes(struct setup *s)
{
    if (!s->compute.float8 || s->compute.decoding || has_magnitudes(s->graph))
        return 0;
    bool **coded = calloc(s->n_units + 1, sizeof *coded);
    s->images = calloc(s->n_units + 1, sizeof *s->images);
    s->image_bytes = calloc(s->n_units + 1, sizeof *s->image_bytes);
    int code = coded && s->images && s->image_bytes
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory for a model's matrices");
    if (!code)
        code = find(s, coded);
    for (uint32_t u = 0; coded && u < s->n_units; u++)
        free(coded[u]);
    free(coded);
    return code;
}

void setup_free_codes(struct setup *s)
{
    for (uint32_t u = 0; s->images && u < s->n_units; u++)
        free(s->images[u].runs);
    free(s->images);
    free(s->image_bytes);
}
