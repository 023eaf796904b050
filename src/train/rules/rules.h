/*
 * rules: how parameters follow from their gradient. An optimizer is a *rule*, a row of the table in
 * rules.c: what of a tensor it needs at once, what its moments take, and who makes its step, on a
 * sub-group's arrays in the form of its state. Plans, ranks, saves and the step ask the row, and
 * compare no names.
 *
 * A rule is chosen for each tensor (setup_rates.h), so a sub-group may hold tensors of several: it
 * is cut into *segments*, each of one optimizer, which are updated one after the other. A
 * sub-group's state is its masters, by zinf_state_form, then the moments of its segments in order,
 * each array at a multiple of ZINF_MEMORY_ALIGN, where a drive can read it. Rows are constant;
 * steps of different sub-groups may run at the same time.
 */
#ifndef ZINF_TRAIN_RULES_H
#define ZINF_TRAIN_RULES_H

#include "cpu_optim/optim.h"
#include "model/graph.h"
#include "offload/offload.h"

struct setup;

/* How much of a unit an optimizer's update must see at once. */
enum rule_grain {
    GRAIN_ELEMENTS, /* single elements: a unit can be cut anywhere, also between ranks */
    /* With the coarser grains, what a rank has of a unit is one sub-group. */
    /* whole matrices, each of which lies in one rank's slice (setup_matrices.c). Moments belong to
       elements nevertheless. Vectors need another optimizer. */
    GRAIN_MATRICES,
    /* all tensors of a unit. With ZeRO stages 0 to 2 each rank has all state and makes all updates.
     */
    GRAIN_TENSORS,
};

/* A rule with its hyperparameters. */
struct optimizer {
    const struct update_rule *rule;
    struct zinf_optim_hyper hyper;            /* without lr and step */
    bool nesterov, match_rms;                 /* Muon and its kin */
    const struct zinf_config_optimizer *keys; /* for rules that are `by_type`: their own keys */
};

/* Consecutive elements [first, first + n) of a sub-group that one optimizer updates. at: where
 * their moments begin in the sub-group's state, in bytes. base: the unit's element with which the
 * sub-group begins. The gap behind a tensor belongs to it. updaters: of the unit (setup.updaters);
 * rank: the number along TENSOR of the rank that has the segment. */
struct rule_segment {
    const struct optimizer *of;
    uint64_t first, n, at, base;
    const uint32_t *updaters;
    uint32_t rank;
};

/* One update of a segment. */
struct rule_step {
    const struct setup *setup;
    uint32_t group;
    struct rule_segment segment;
    char *state; /* of the sub-group, like param and grad */
    char *param; /* in the setup's number type; with ZINF_STATE_BARE the master itself */
    const float *grad;
    float grad_scale;
    /* for all tensors; the rule applies their own rates (rule_stretch_at) */
    struct zinf_optim_hyper hyper;
    void *workspace;          /* setup.update_bytes */
    struct zinf_queue *queue; /* for device_step */
};

/* A matrix that an update is made of: [rows][cols], outputs by inputs. */
struct matrix_shape {
    uint64_t rows, cols;
    bool transposed; /* the file has [cols][rows] */
    bool in_parts;   /* several pieces of the unit make it up (matrix_parts.c) */
};

/* What the update of a matrix takes in a step, on average, beyond reading its state, parameters and
 * gradient once and writing the first two: flops of products; bytes that are read and written in
 * RAM between these; and what the loops take that do this, in flops of products that take as long:
 * in a profile of one core that made 89 flops a nanosecond. */
struct rule_work {
    double flops, bytes, loops;
};

struct update_rule {
    const char *type;          /* optimizer.type */
    bool half;                 /* with bf16.bf16_optimizer_states */
    enum zinf_optim_kind kind; /* ZINF_OPTIM_KINDS: not an optimizer of cpu_optim */
    uint32_t number;           /* identifies the form of moments in files: must never change */
    enum rule_grain grain;
    /* The moments of a segment: n_moments arrays [n] of moment_bytes each. If block is not 0,
     * elements share scales: n_moments arrays [n / block] of fp32 scales follow. In files they are
     * moments 1 and 2. */
    uint32_t n_moments, moment_bytes, block;
    bool by_momentum; /* Muon and its kin: beta1 is optimizer.params.momentum */
    bool by_type;     /* it has keys of its own and must therefore be optimizer.type */
    /* How many fp32 numbers are kept of a matrix, behind the moments; NULL: none. In files they are
     * the part after all moments (setup_kept_part). */
    uint64_t (*matrix_floats)(const struct optimizer *of, const struct matrix_shape *shape);
    /* for GRAIN_MATRICES */
    struct rule_work (*matrix_work)(const struct optimizer *of, const struct matrix_shape *shape);
    /* unit_bytes: for GRAIN_TENSORS, the bytes of a unit's moments, instead of the arrays above.
     * workspace_bytes: for grains coarser than elements, the memory that the update of a tensor
     * needs; NULL: none. */
    uint64_t (*unit_bytes)(const struct zinf_unit *unit);
    uint64_t (*workspace_bytes)(const struct setup *s, const struct zinf_unit *unit,
                                uint32_t tensor);
    int (*step)(const struct rule_step *s);
    int (*device_step)(const struct rule_step *s); /* NULL: only the host can make the step */
    /* Fails if the tensors' optimizers or rates do not suit the rule; `key` names the setting in
     * the message. NULL: all suit it. */
    int (*check_rates)(const struct setup *s, const char *key);
};

/* The rule with this optimizer.type. NULL: there is none. */
const struct update_rule *rule_find(const char *type, bool half);

/* ---- where moments are in a sub-group's state ---- */

/* Goes to the next segment of the sub-group; *segment must be {0} before the first. false: there
 * are no more. */
bool rule_next_segment(const struct setup *s, uint32_t group, struct rule_segment *segment);
/* The same for another rank: one with this number along TENSOR, whose sub-group begins with element
 * `begin` of the unit. */
bool rule_next_segment_of(const struct setup *s, uint32_t group, uint64_t begin, uint32_t rank,
                          struct rule_segment *segment);
/* The offset of moment `which` (1 or 2), and of the scales of all moments, in the sub-group's
 * state, in bytes; and the bytes of the scales. */
uint64_t rule_moment_at(const struct rule_segment *segment, int which);
uint64_t rule_scales_at(const struct rule_segment *segment);
uint64_t rule_scales_bytes(const struct rule_segment *segment);
/* rule_has_piece: whether the segment has the piece of a tensor. rule_kept_at: the offset in the
 * state of what is kept of a matrix, by a rank that makes its update. */
bool rule_has_piece(const struct rule_segment *segment, const struct zinf_tensor *tensor,
                    uint32_t piece);
uint64_t rule_kept_at(const struct rule_segment *segment, const struct zinf_unit *unit,
                      uint32_t tensor, uint32_t piece);
/* Bytes of a sub-group's state: moments and master weights. */
uint64_t rule_state_bytes(const struct setup *s, uint32_t group);

/* The offset in the state behind the segment's moments, where the next segment begins. */
uint64_t rule_segment_end(const struct rule_segment *segment, const struct zinf_unit *unit);

/* ---- packed.c: packing of a sub-group's data on a drive; steps of rules see unpacked data ---- */

/* A sub-group's state, parameters or kept gradient. */
struct rule_thing {
    const struct setup *setup;
    enum zinf_packable what;
    uint32_t group;
    /* Pages on a drive have checksums (zinf.checksums). Packed data then have no checksums of their
     * own; in RAM they have none at all, like data that are not packed. */
    bool summed_elsewhere;
};
/* Whether packed images of it have no checksums of their own. */
bool rule_packs_unsummed(const struct rule_thing *t);
/* Whether it may be packed and packing makes it shorter. */
bool rule_packs(const struct rule_thing *t);
/* Estimated fraction of its bytes after packing; rule_plain_bytes: its bytes before. */
double rule_packed_share(const struct rule_thing *t);
/* The bytes that it is expected to take on a drive once it is packed, with its head and the rest of
 * its last page; rule_plain_bytes is the most that it takes. rule_expected_state computes those of
 * state, which setup.state_expected has. */
uint64_t rule_packed_expected(const struct rule_thing *t);
uint64_t rule_expected_state(const struct setup *s, uint32_t group);
/* Bytes of numbers of 32 and of 16 bits that packing of a sub-group's state unpacks and packs, if
 * they may be packed. setup.state_numbers has the results. */
struct rule_numbers {
    uint64_t wide, half;
};
struct rule_numbers rule_state_numbers(const struct setup *s, uint32_t group);
/* The same for a sub-group's state, and for parameters, if they may be packed. setup.state_shares
 * has the results of the former. */
double rule_state_share(const struct setup *s, uint32_t group);
double rule_param_share(const struct setup *s);
uint64_t rule_plain_bytes(const struct rule_thing *t);
/* Bytes of the slot that packing needs; for parameters and gradients more than rule_plain_bytes. */
uint64_t rule_slot_bytes(const struct rule_thing *t);
/* Packs `plain` into `slot`, which has rule_slot_bytes and begins on a page. *bytes: how much of
 * the slot to store, in whole pages; 0: the slot has the data unpacked. */
int rule_pack(const struct rule_thing *t, void *slot, const void *plain, uint64_t *bytes);
/* Unpacks; bytes 0: copies. -EBADMSG: the slot's bytes are not packed data of this thing. */
int rule_unpack(const struct rule_thing *t, void *plain, const void *slot, uint64_t bytes);
/* Unpack parameters on the device, in two steps. rule_check_packed: the CPU checks the slot's head
 * and tables; -EBADMSG: they are damaged. rule_device_unpack: the device unpacks a copy of the slot
 * and sets *damaged, in its memory, to 1 if the numbers are damaged. */
int rule_check_packed(const struct rule_thing *t, const void *slot, uint64_t bytes);
int rule_device_unpack(const struct rule_thing *t, struct zinf_queue *queue, void *plain,
                       const void *slot, uint32_t *damaged);
/* Fails with -EBADMSG and a message that names the thing. */
int rule_damaged(const struct rule_thing *t);
/* rule_packed_seal writes the head of a slot whose head and images take `used` bytes, fills the
 * last page with zeros, and returns the slot's bytes in whole pages. rule_packed_lines: how many
 * bytes of a slot an image of this length takes. */
#define PACKED_HEAD_BYTES 64
uint64_t rule_packed_seal(const struct rule_thing *t, void *slot, uint64_t used);
uint64_t rule_packed_lines(uint64_t bytes);
/* Reads the bytes that rule_pack gave for a slot from the slot's first page; 0: the data is
 * unpacked. */
int rule_packed_bytes(const struct rule_thing *t, const void *page, uint64_t *bytes);

/* ---- packed_change.c: an update of packed data, piece by piece ---- */

struct rule_change {
    struct rule_step step; /* all members but state, param and workspace */
    /* The state, as for rule_unpack, and the slot of rule_slot_bytes for the new one, which
     * may be the same memory. */
    const void *from;
    uint64_t from_bytes;
    void *slot;
    void *room; /* further memory, of the state's rule_slot_bytes */
    /* param: the parameters. in_place: they are changed there; old_param: where they are before, in
     * memory that overlaps nothing else and stays as it is, or NULL: at param. param_slot: where
     * new ones go packed, or NULL. */
    void *param;
    const void *old_param;
    bool in_place;
    void *param_slot;
    bool summed_elsewhere;       /* as in struct rule_thing */
    uint64_t bytes, param_bytes; /* results, as from rule_pack */
};
/* rule_changes_packed: whether an update of packed data is possible: one rule over elements for the
 * whole sub-group, a suitable form of the state, and enough room. rule_change_packed makes the
 * update. */
bool rule_changes_packed(struct rule_change *c);
int rule_change_packed(struct rule_change *c);

/* ---- for rules ---- */

/* The arrays of master weights of a sub-group from element `first` on; which are there depends on
 * the form of the state (zinf_state_form). */
struct rule_masters {
    float *master;
    uint16_t *remainder;
    void *param;
};
struct rule_masters rule_masters(const struct rule_step *s, uint64_t first);
/* The same arrays n elements further on. */
struct rule_masters rule_masters_beyond(const struct setup *s, const struct rule_masters *own,
                                        uint64_t n);

/* Consecutive elements of a unit that are updated with one optimizer, rate and weight decay. */
struct stretch {
    uint64_t n;
    double lr_scale;
    float weight_decay;
    uint32_t optimizer; /* index in the setup's optimizers */
};
/* The stretch from element `at` of the unit to the end of weight decay or, if tensors have rates of
 * their own, to the next tensor with another rate. Gaps between tensors are zeros, which remain
 * zeros with any rate. */
struct stretch rule_stretch_at(const struct setup *s, uint32_t unit, uint64_t at);

/* elements.c */
int rule_step_elements(const struct rule_step *s);
int rule_step_adam_on_device(const struct rule_step *s);
/* rule_step_some updates elements [first, first + n) of the segment in the calling thread. Their
 * moments and master weights begin at the given places. Not for moments that share scales. */
struct rule_places {
    char *moments[2];
    struct rule_masters own;
};
int rule_step_some(const struct rule_step *s, const struct rule_places *places, uint64_t first,
                   uint64_t n);
int rule_check_blocks(const struct setup *s, const char *key);

/* matrix_parts.c: which matrices of the model's files a unit has */
/* rule_matrix_rows: how many rows of a tensor come from a piece's matrix. rule_is_matrix: whether
 * the unit's tensor consists of whole matrices of the files, or of parts of matrices that all
 * ranks' shards of the unit have whole. rule_matrix_shape: of the whole matrix that the piece is
 * of. */
uint64_t rule_matrix_rows(const struct zinf_piece *piece);
bool rule_is_matrix(const struct setup *s, uint32_t unit, const struct zinf_tensor *tensor);
struct matrix_shape rule_matrix_shape(const struct zinf_tensor *tensor,
                                      const struct zinf_piece *piece);
/* The pieces that a matrix of a unit consists of; {0} before the first one. */
struct matrix_part {
    uint32_t tensor, piece;
    uint32_t n; /* parts up to this one */
};
/* Goes to the next part of the matrix whose first piece this is. false: there are no more. */
bool rule_next_part(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece,
                    struct matrix_part *part);
/* Whether the piece is the first of its matrix, which stands for all of it: plans count the
 * matrix's work, and its owner keeps what belongs to it, at this piece. */
bool rule_leads(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece);
/* The place in its unit of a piece's first element, by which ranks along DATA own matrices. */
static inline uint64_t rule_piece_at(const struct zinf_tensor *t, uint32_t piece)
{
    return t->offset + t->pieces[piece].rows.flat_first * t->cols;
}
/* rule_is_shared: whether the unit has only some rows of the piece's matrix, and other ranks along
 * TENSOR the others. rule_find_matrix: sets *tensor and *number to the unit's first piece of the
 * matrix that `piece` is of; false: it has none. */
bool rule_is_shared(const struct zinf_unit *unit, uint32_t tensor, uint32_t piece);
bool rule_find_matrix(const struct zinf_unit *unit, const struct zinf_piece *piece,
                      uint32_t *tensor, uint32_t *number);
/* The number of a piece among all of its unit, by which setup.updaters is indexed. */
static inline uint32_t rule_piece_number(const struct zinf_unit *unit, uint32_t tensor,
                                         uint32_t piece)
{
    uint32_t n = piece;
    for (uint32_t i = 0; i < tensor; i++)
        n += unit->tensors[i].n_pieces;
    return n;
}
/* The number behind the last tensor of a run that begins with this one and has all its matrices
 * whole. */
uint32_t rule_run_end(const struct zinf_unit *unit, uint32_t tensor);
int rule_check_matrices(const struct setup *s, const char *key);

/* matrix_ranks.c: an update in which ranks that share matrices give each other their parts.
 * rule_meeting_bytes: the memory that it needs for these, at the end of the workspace, on any rank.
 * rule_meeting_sent: what this rank sends in it. */
uint64_t rule_meeting_bytes(const struct setup *s, uint32_t group);
uint64_t rule_meeting_sent(const struct setup *s, uint32_t group);

/* matrices.c: Muon and NorMuon */
struct rule_work rule_muon_work(const struct optimizer *of, const struct matrix_shape *shape);
struct rule_work rule_normuon_work(const struct optimizer *of, const struct matrix_shape *shape);
int rule_step_muon(const struct rule_step *s);
int rule_step_normuon(const struct rule_step *s);
uint64_t rule_matrices_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor);
uint64_t rule_neurons_kept(const struct optimizer *of, const struct matrix_shape *shape);

/* projected.c */
struct rule_work rule_galore_work(const struct optimizer *of, const struct matrix_shape *shape);
struct rule_work rule_apollo_work(const struct optimizer *of, const struct matrix_shape *shape);
int rule_step_galore(const struct rule_step *s);
int rule_step_apollo(const struct rule_step *s);
uint64_t rule_galore_kept(const struct optimizer *of, const struct matrix_shape *shape);
uint64_t rule_apollo_kept(const struct optimizer *of, const struct matrix_shape *shape);
uint64_t rule_galore_workspace(const struct setup *s, const struct zinf_unit *unit,
                               uint32_t tensor);
uint64_t rule_apollo_workspace(const struct setup *s, const struct zinf_unit *unit,
                               uint32_t tensor);

/* factored.c: Adafactor, arXiv 1804.04235. */
int rule_step_factored(const struct rule_step *s);
uint64_t rule_factored_bytes(const struct zinf_unit *unit);
uint64_t rule_factored_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor);
int rule_check_factored(const struct setup *s, const char *key);
/* A tensor as Adafactor sees it: [rows][cols] as in the unit, one row for a vector; and the offsets
 * of its moments of rows and columns, in floats from the unit's first. */
struct factors {
    uint64_t rows, cols;
    uint64_t row_offset, col_offset; /* a vector has only columns */
};
struct factors unit_factors(const struct zinf_unit *unit, uint32_t tensor);

#endif
