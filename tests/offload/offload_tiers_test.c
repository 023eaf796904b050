/*
 * offload: every location of every tier has bytes of its own, for all pairs of tiers, in one and
 * two generations; and who looks at what is overwritten sees the copy of it.
 */
#include "offload_support.h"

static void fill(char *memory, uint64_t bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < bytes; i++)
        memory[i] = (char)(i * 7 + i / 4096 + seed * 31);
}

struct machine {
    struct zinf_device *device;
    struct zinf_queue *queue;
    struct zinf_tiers *tiers;
    char *memory, *back;
    uint64_t capacity;
    uint8_t generations, param_copies;
    bool param_headed;
};

static int read_at(const struct machine *m, const struct zinf_location *where, uint64_t offset,
                   void *memory, uint64_t bytes)
{
    return zinf_location_read(&(struct zinf_access){m->tiers, m->device, m->queue}, where, offset,
                              memory, bytes);
}

static int write_at(const struct machine *m, const struct zinf_location *where, uint64_t offset,
                    const void *memory, uint64_t bytes)
{
    return zinf_location_write(&(struct zinf_access){m->tiers, m->device, m->queue}, where, offset,
                               memory, bytes);
}

static void move_location(const struct machine *m, struct zinf_location where, uint32_t seed,
                          bool write)
{
    CHECK(where.bytes > 0 && where.bytes <= m->capacity);
    fill(m->memory, where.bytes, seed);
    if (write) {
        CHECKF(!write_at(m, &where, 0, m->memory, where.bytes), "%s", zinf_error());
        return;
    }
    CHECKF(!read_at(m, &where, 0, m->back, where.bytes), "%s", zinf_error());
    CHECKF(!memcmp(m->memory, m->back, where.bytes), "location %u has other bytes", seed);
}

/* Writes all, then reads all: places that overlap would show. */
static void move_all(const struct machine *m, const struct zinf_layout *layout)
{
    for (int write = 1; write >= 0; write--) {
        uint32_t seed = 0;
        for (uint32_t u = 0; u < layout->n_units; u++) {
            for (uint8_t generation = 0; generation < m->param_copies && !m->param_headed;
                 generation++)
                move_location(m, zinf_tiers_param(m->tiers, u, generation), seed++, write);
            move_location(m, zinf_tiers_unit_grad(m->tiers, u), seed++, write);
        }
        for (uint32_t g = 0; g < layout->n_groups; g++)
            for (uint8_t generation = 0; generation < m->generations; generation++)
                move_location(m, zinf_tiers_group_state(m->tiers, g, generation), seed++, write);
    }
    /* What is live is the generation that was last made so. */
    for (uint32_t u = 0; u < layout->n_units; u++) {
        *zinf_tiers_live(m->tiers, u) = 1;
        struct zinf_location now = zinf_tiers_param(m->tiers, u, 0);
        CHECK(zinf_location_generation(&now) == (now.stride ? 1 : 0));
    }
    /* The groups' parameters and gradients are parts of their units'. */
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        move_location(m, zinf_tiers_group_param(m->tiers, g, 0), 1000 + g, true);
        move_location(m, zinf_tiers_group_grad(m->tiers, g), 2000 + g, true);
    }
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        move_location(m, zinf_tiers_group_param(m->tiers, g, 0), 1000 + g, false);
        move_location(m, zinf_tiers_group_grad(m->tiers, g), 2000 + g, false);
    }
}

/* Both generations of the copies hold what they were given, whatever becomes of the parameters; a
 * view stays with the generation that was live. */
static void look_at_copies(const struct machine *m, const struct zinf_layout *layout)
{
    struct machine view = *m;
    for (uint32_t g = 0; g < layout->n_groups; g++)
        for (uint8_t other = 0; other < 2; other++)
            move_location(m, zinf_tiers_group_backing(m->tiers, g, other), 2 * g + other, true);
    CHECK(!zinf_tiers_view(&view.tiers, m->tiers));
    for (uint32_t u = 0; u < layout->n_units; u++) {
        CHECK(!zinf_tiers_param(m->tiers, u, 0).live);
        *zinf_tiers_live(m->tiers, u) ^= 1;
        if (!m->param_headed)
            move_location(m, zinf_tiers_param(m->tiers, u, 0), 3000 + u, true);
    }
    for (uint32_t g = 0; g < layout->n_groups; g++) {
        move_location(&view, zinf_tiers_group_param(view.tiers, g, 0), 2 * g, false);
        move_location(m, zinf_tiers_group_backing(m->tiers, g, 0), 2 * g + 1, false);
    }
    zinf_tiers_destroy(view.tiers);
}

/* Ranges of what has a head that lie before, across and behind its end are those of the whole. */
static void look_at_head(const struct machine *m, struct zinf_location all,
                         struct zinf_location tail, uint32_t seed)
{
    const struct zinf_location parts[] = {all, tail};
    CHECK(all.head && tail.head == all.head && tail.bytes == all.bytes - all.head);
    move_location(m, all, seed, true);
    for (int beyond = 0; beyond < 2; beyond++)
        for (uint64_t at = 0; at < parts[beyond].bytes; at += 4096) {
            const uint64_t left = parts[beyond].bytes - at, n = left < 12288 ? left : 12288;
            CHECK(!read_at(m, &parts[beyond], at, m->back, n));
            CHECK(!memcmp(m->back, m->memory + at + (beyond ? all.head : 0), n));
        }
    fill(m->memory, all.bytes, 4000 + seed);
    for (uint64_t at = 0; at < all.bytes; at += 8192) {
        const uint64_t left = all.bytes - at, n = left < 8192 ? left : 8192;
        CHECK(!write_at(m, &all, at, m->memory + at, n));
    }
    CHECK(!read_at(m, &all, 0, m->back, all.bytes));
    CHECK(!memcmp(m->back, m->memory, all.bytes));
}

/* Of parameters either generation: head and rest exist once, and which of both they are is told. */
static void look_at_heads(const struct machine *m, const struct zinf_layout *layout, bool state)
{
    const uint8_t n = state ? 1 : m->generations;
    for (uint32_t g = 0; g < layout->n_groups; g++)
        for (uint8_t other = 0; other < n; other++)
            look_at_head(m,
                         state ? zinf_tiers_group_state(m->tiers, g, 0)
                               : zinf_tiers_group_param(m->tiers, g, other),
                         state ? zinf_tiers_group_tail(m->tiers, g)
                               : zinf_tiers_group_param_tail(m->tiers, g, other),
                         2 * g + other);
    for (uint32_t g = 0; g < layout->n_groups && n > 1; g++) {
        const struct zinf_location tail = zinf_tiers_group_param_tail(m->tiers, g, 0);
        CHECK(!read_at(m, &tail, 0, m->back, tail.bytes));
        fill(m->memory, tail.head + tail.bytes, 4000 + 2 * g + 1);
        CHECK(tail.live && !memcmp(m->back, m->memory + tail.head, tail.bytes));
        CHECK(zinf_store_generations(zinf_tiers_options(m->tiers)->store, tail.extent) == 1);
    }
}

/* On every unit's home. */
static void try_tiers(struct zinf_home home)
{
    const uint64_t elems[] = {5000, 40000, 12289};
    struct zinf_layout layout;
    struct zinf_ledger *ledger = NULL;
    struct zinf_store *store = NULL;
    struct zinf_arena host = {0}, scratch = {0};
    struct machine m = {.capacity = 1 << 20,
                        .generations = home.generations,
                        .param_copies = home.overwritten ? 1 : home.generations,
                        .param_headed = home.param_headed};
    home.keeps_grad = true;
    const struct zinf_home homes[] = {home, home, home};
    const uint64_t heads[] = {4096, 8192, 4096, 4096, 4096, 4096, 16384, 8192};
    const uint64_t param_heads[] = {4096, 8192, 4096, 8192, 4096, 8192, 4096, 4096};
    const char *path = work;
    struct zinf_store_options store_options = {
        .paths = &path, .n_paths = 1, .label = "tiers", .allow_memory_fs = true};
    struct zinf_device_options device_options = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    CHECK(!lay_out(&layout, elems, 3, 10000, 0, 1));
    CHECK(!zinf_ledger_create(&ledger) && !zinf_store_create(&store, &store_options));
    struct zinf_tiers_options options = {.layout = &layout,
                                         .dtype = ZINF_DTYPE_BF16,
                                         .form = ZINF_STATE_SPLIT,
                                         .n_moments = 2,
                                         .head_bytes = heads,
                                         .param_head_bytes = param_heads,
                                         .places = homes,
                                         .store = store};
    CHECKF(!zinf_tiers_plan(&m.tiers, &options, ledger), "%s", zinf_error());
    CHECK(!zinf_device_create(&m.device, &device_options));
    CHECK(!zinf_device_take_memory(m.device, zinf_ledger_arena_bytes(ledger, ZINF_MEMORY_DEVICE)));
    CHECK(!m.device->ops->queue_create(m.device, ZINF_QUEUE_TO_DEVICE, &m.queue));
    CHECK(!zinf_arena_init(&host, zinf_ledger_arena_bytes(ledger, ZINF_MEMORY_HOST), "host"));
    CHECK(!zinf_arena_init(&scratch, 2 * m.capacity, "scratch"));
    if (zinf_store_planned_bytes(store))
        CHECKF(!zinf_store_allocate(store), "%s", zinf_error());
    m.memory = scratch.base;
    m.back = scratch.base + m.capacity;
    zinf_tiers_place(m.tiers, m.device->memory, host.base);
    move_all(&m, &layout);
    if (home.headed)
        look_at_heads(&m, &layout, true);
    if (home.param_headed)
        look_at_heads(&m, &layout, false);
    if (home.overwritten)
        look_at_copies(&m, &layout);
    zinf_tiers_destroy(m.tiers);
    zinf_store_destroy(store);
    m.device->ops->queue_destroy(m.queue);
    zinf_device_destroy(m.device);
    zinf_arena_fini(&scratch);
    zinf_arena_fini(&host);
    zinf_ledger_destroy(ledger);
    zinf_layout_fini(&layout);
}

static void test_every_location_of_every_tier(void)
{
    for (enum zinf_tier param = ZINF_TIER_DEVICE; param <= ZINF_TIER_DRIVE; param++)
        for (enum zinf_tier state = ZINF_TIER_DEVICE; state <= ZINF_TIER_DRIVE; state++)
            try_tiers((struct zinf_home){param, state, .grad = state, .generations = 1});
    struct zinf_home pair = {ZINF_TIER_DRIVE, ZINF_TIER_DRIVE, ZINF_TIER_HOST, .generations = 2};
    try_tiers(pair);
    pair.param = ZINF_TIER_HOST;
    try_tiers(pair);
    pair.backed = pair.overwritten = true;
    try_tiers(pair);
    pair.param_headed = pair.packs_copy = true;
    try_tiers(pair);
    struct zinf_home in_ram = {ZINF_TIER_HOST, ZINF_TIER_HOST, ZINF_TIER_HOST, .generations = 1,
                               .headed = true};
    try_tiers(in_ram);
    in_ram.param_headed = true;
    try_tiers(in_ram);
}

int main(void)
{
    begin_offload("tiers");
    TAP_RUN(test_every_location_of_every_tier);
    return end_offload();
}
