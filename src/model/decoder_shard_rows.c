/*
 * decoder_shard_rows: tensors of a decoder that is cut, as units have them: one of a shard, one
 * that all ranks have, and rows of the file's.
 */
#include "model/decoder_shards.h"

uint64_t shards_rows(const struct shards_source *s)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < s->n; i++)
        rows += s->first[i].rows;
    return rows;
}

bool shards_keep_order(const struct shards_source *s)
{
    bool keep = true;
    for (size_t i = 0; i < s->n; i++)
        keep &= decoder_keeps_order(s->first[i].order);
    return keep;
}

int shards_add_tensor(struct zinf_graph *graph, uint32_t unit, const struct shards_source *s,
                      uint32_t shard, uint64_t rows)
{
    const uint64_t cols = s->first->cols;
    const struct zinf_tensor tensor = {.rank = cols ? 2 : 1,
                                       .rows = rows,
                                       .cols = cols ? cols : 1,
                                       .decay = cols != 0 || decoder_decays(s->first->place),
                                       .init = s->first->init,
                                       .init_std = s->first->std,
                                       .cut = true,
                                       .joins = cols && shards_keep_order(s),
                                       .shard = shard};
    return (int)zinf_graph_add_tensor(graph, unit, &tensor);
}

void shards_add_rows(struct zinf_graph *graph, uint32_t unit, const struct shards_source *s,
                     const struct decoder_tensors *tensors, struct zinf_row_map map)
{
    const struct decoder_tensor *t = s->first;
    while (map.file_first >= t->rows) /* a shard's rows never go from one tensor to the next */
        map.file_first -= t++->rows;
    map.count = map.count ? map.count : 1;
    decoder_add_piece(graph, unit, t, tensors, map);
}

int shards_add_whole(struct zinf_graph *graph, uint32_t unit, const struct decoder_tensors *tensors,
                     const struct shards_source *s)
{
    const struct zinf_tensor tensor = {.rank = s->first->cols ? 2 : 1,
                                       .rows = shards_rows(s),
                                       .cols = s->first->cols ? s->first->cols : 1,
                                       .decay =
                                           s->first->cols != 0 || decoder_decays(s->first->place),
                                       .init = s->first->init,
                                       .init_std = s->first->std};
    const int at = (int)zinf_graph_add_tensor(graph, unit, &tensor);
    uint64_t first = 0;
    for (size_t i = 0; i < s->n; first += s->first[i++].rows)
        shards_add_rows(graph, unit, s, tensors,
                        (struct zinf_row_map){
                            .file_first = first, .flat_first = first, .rows = s->first[i].rows});
    return at;
}
