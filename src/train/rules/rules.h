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

/* What of a unit an update must see at once. */
enum rule_grain {
    GRAIN_ELEMENTS, /* nothing: a unit is cut anywhere, between ranks too */
    /* From here on what a rank has of a unit is one sub-group. */
    GRAIN_MATRICES, /* a whole matrix, which lies in one rank's slice (setup_matrices.c); moments
                     * are an element's all the same. Vectors have none of it: they are another
                     * rule's */
    GRAIN_TENSORS,  /* all tensors of a unit, matrices and vectors, and a table in one unit. Each
                     * rank of stages 0 to 2 has all state and makes all updates */
};

/* A rule with the numbers that it steps by. */
struct optimizer {
    const struct update_rule *rule;
    struct zinf_optim_hyper hyper;            /* without lr and step */
    bool nesterov, match_rms;                 /* Muon and its kin */
    const struct zinf_config_optimizer *keys; /* of rules that are `by_type` */
};

/* Elements of a sub-group, one behind the other, that are of one optimizer; where their moments
 * begin in its state, in bytes; and the element of the unit that the sub-group begins with. The gap
 * behind a tensor is the tensor's. */
struct rule_segment {
    const struct optimizer *of;
    uint64_t first, n, at, base;
};

/* A segment's update. */
struct rule_step {
    const struct setup *setup;
    uint32_t group;
    struct rule_segment segment;
    char *state; /* the sub-group's, as what follows */
    char *param; /* in the setup's number type; with ZINF_STATE_BARE the master itself */
    const float *grad;
    float grad_scale;
    struct zinf_optim_hyper hyper; /* of all its tensors: their rates are the rule's to apply */
    void *workspace;               /* of the most that workspace_bytes says */
    struct zinf_queue *queue;      /* where the device makes it */
};

struct update_rule {
    const char *type;          /* optimizer.type */
    bool half;                 /* with bf16.bf16_optimizer_states */
    enum zinf_optim_kind kind; /* ZINF_OPTIM_KINDS: none of cpu_optim's over elements */
    uint32_t number;           /* tells moments from another rule's in files: never changed */
    enum rule_grain grain;
    /* Moments of a segment: [n] of moment_bytes each, then, where elements share a scale,
     * [n / block] fp32 scales of each, one behind the other. As of files: moments 1 and 2. */
    uint32_t n_moments, moment_bytes, block;
    bool by_momentum; /* Muon and its kin: beta1 is optimizer.params.momentum */
    bool by_type;     /* it has keys of its own, so that it must be optimizer.type */
    /* Behind them, fp32 numbers that are kept of each matrix; NULL: none. As of files the part
     * behind all moments (setup_kept_part). */
    uint64_t (*matrix_floats)(const struct optimizer *of, const struct zinf_tensor *tensor,
                              const struct zinf_piece *piece);
    /* Of the same grain: operations of a matrix' products in a step, on average. */
    double (*matrix_flops)(const struct optimizer *of, const struct zinf_tensor *tensor,
                           const struct zinf_piece *piece);
    /* Of GRAIN_TENSORS instead: the moments of a unit. Of coarser grains than elements what the
     * update of a tensor needs beside them; NULL: nothing. */
    uint64_t (*unit_bytes)(const struct zinf_unit *unit);
    uint64_t (*workspace_bytes)(const struct setup *s, const struct zinf_unit *unit,
                                uint32_t tensor);
    int (*step)(const struct rule_step *s);
    int (*device_step)(const struct rule_step *s); /* NULL: the host alone makes it */
    /* Why tensors cannot have the rates that they have: `key` says who asks. NULL: they can. */
    int (*check_rates)(const struct setup *s, const char *key);
};

/* NULL: there is none. */
const struct update_rule *rule_find(const char *type, bool half);

/* ---- where moments are in a sub-group's state ---- */

/* From {0} on, the sub-group's segments one after the other. False: that was the last. */
bool rule_next_segment(const struct setup *s, uint32_t group, struct rule_segment *segment);
/* Moment `which`, 1 or 2, and the scales of all, in the sub-group's state. */
uint64_t rule_moment_at(const struct rule_segment *segment, int which);
uint64_t rule_scales_at(const struct rule_segment *segment);
uint64_t rule_scales_bytes(const struct rule_segment *segment);
/* Whether the piece of a tensor is the segment's; what is kept of a matrix, in the state. */
bool rule_has_piece(const struct rule_segment *segment, const struct zinf_tensor *tensor,
                    uint32_t piece);
uint64_t rule_kept_at(const struct rule_segment *segment, const struct zinf_unit *unit,
                      uint32_t tensor, uint32_t piece);
/* All of a sub-group's state, moments and masters. */
uint64_t rule_state_bytes(const struct setup *s, uint32_t group);

/* Where the next segment begins. */
uint64_t rule_segment_end(const struct rule_segment *segment, const struct zinf_unit *unit);

/* ---- packed.c: packing of a sub-group's data on a drive; steps of rules see unpacked data ---- */

/* A sub-group's state, parameters or kept gradient. */
struct rule_thing {
    const struct setup *setup;
    enum zinf_packable what;
    uint32_t group;
    /* Pages on a drive have checksums (zinf.checksums): what is packed then gets none beside them,
     * and in RAM, like what is not packed, none at all. */
    bool summed_elsewhere;
};
/* Whether images of it have no checksums of their payload. */
bool rule_packs_unsummed(const struct rule_thing *t);
/* Whether it may be packed, and has anything that packing makes shorter. */
bool rule_packs(const struct rule_thing *t);
/* Estimated fraction of its bytes after packing; rule_plain_bytes: its bytes before. */
double rule_packed_share(const struct rule_thing *t);
/* The same of a sub-group's state where it may be packed, for setup.state_shares; of parameters
 * where they may be. */
double rule_state_share(const struct setup *s, uint32_t group);
double rule_param_share(const struct setup *s);
uint64_t rule_plain_bytes(const struct rule_thing *t);
/* Memory that packing needs: more than as it is where all of it is one image. */
uint64_t rule_slot_bytes(const struct rule_thing *t);
/* Packs `plain` into `slot`, which has rule_slot_bytes and begins on a page. *bytes: how much of
 * the slot to store, in whole pages; 0: the slot has the data unpacked. */
int rule_pack(const struct rule_thing *t, void *slot, const void *plain, uint64_t *bytes);
/* Unpacks; bytes 0: copies. -EBADMSG: the slot's bytes are not packed data of this thing. */
int rule_unpack(const struct rule_thing *t, void *plain, const void *slot, uint64_t bytes);
/* The same of parameters by the device, in two steps: the CPU looks at the slot's head and tables,
 * -EBADMSG; then the device unpacks a copy of it, and makes *damaged, in its memory, 1 if its
 * numbers are damaged. */
int rule_check_packed(const struct rule_thing *t, const void *slot, uint64_t bytes);
int rule_device_unpack(const struct rule_thing *t, struct zinf_queue *queue, void *plain,
                       const void *slot, uint32_t *damaged);
/* -EBADMSG: by a sentence that names the thing. */
int rule_damaged(const struct rule_thing *t);
/* The slot's head, before the first image, over `used` bytes; zeros from there to a whole page: the
 * slot's bytes. What an image of so many bytes takes in it. */
#define PACKED_HEAD_BYTES 64
uint64_t rule_packed_seal(const struct rule_thing *t, void *slot, uint64_t used);
uint64_t rule_packed_lines(uint64_t bytes);
/* *bytes: as rule_pack gave it for a slot, from its first page; 0: the data is unpacked. */
int rule_packed_bytes(const struct rule_thing *t, const void *page, uint64_t *bytes);

/* ---- packed_change.c: an update of packed data, piece by piece ---- */

struct rule_change {
    struct rule_step step; /* all but state, param and workspace */
    /* The packed state as rule_unpack takes it, and where the new one goes: a slot of
     * rule_slot_bytes, which may be the same memory. */
    const void *from;
    uint64_t from_bytes;
    void *slot;
    void *room; /* of rule_slot_bytes of the state, beside them */
    /* The parameters, and whether they are changed there; where they go packed, or NULL. */
    void *param;
    bool in_place;
    void *param_slot;
    bool summed_elsewhere;       /* of struct rule_thing */
    uint64_t bytes, param_bytes; /* results, as rule_pack has them */
};
/* Whether the rule, which must be one for all of the sub-group, and the form of the state are such
 * that an update can go piece by piece, and the room is enough for it. */
bool rule_changes_packed(struct rule_change *c);
int rule_change_packed(struct rule_change *c);

/* ---- for rules ---- */

/* The sub-group's parameters from element `first` on, by the form of its state. */
struct rule_masters {
    float *master;
    uint16_t *remainder;
    void *param;
};
struct rule_masters rule_masters(const struct rule_step *s, uint64_t first);
/* Those of n elements further. */
struct rule_masters rule_masters_beyond(const struct setup *s, const struct rule_masters *own,
                                        uint64_t n);

/* Elements of a unit, one behind the other, that are updated with one optimizer, rate and weight
 * decay. */
struct stretch {
    uint64_t n;
    double lr_scale;
    float weight_decay;
    uint32_t optimizer; /* of the setup's */
};
/* From element `at` of the unit to where weight decay ends or, where tensors have rates of their
 * own, to the next tensor that has another one. The gaps between tensors are zeros, which an update
 * with any rate leaves zeros. */
struct stretch rule_stretch_at(const struct setup *s, uint32_t unit, uint64_t at);

/* elements.c */
int rule_step_elements(const struct rule_step *s);
int rule_step_adam_on_device(const struct rule_step *s);
/* Elements [first, first + n) of the segment, whose moments and masters begin at these places; not
 * of moments that share scales. By the calling thread. */
struct rule_places {
    char *moments[2];
    struct rule_masters own;
};
int rule_step_some(const struct rule_step *s, const struct rule_places *places, uint64_t first,
                   uint64_t n);
int rule_check_blocks(const struct setup *s, const char *key);

/* matrix.c */
/* Rows of the tensor that a matrix of the model's files makes up; whether all of it is made of
 * whole ones. */
uint64_t rule_matrix_rows(const struct zinf_piece *piece);
bool rule_is_matrix(const struct zinf_tensor *tensor);
int rule_check_matrices(const struct setup *s, const char *key);

/* matrices.c: Muon and NorMuon */
double rule_orthogonal_flops(const struct optimizer *of, const struct zinf_tensor *tensor,
                             const struct zinf_piece *piece);
int rule_step_muon(const struct rule_step *s);
int rule_step_normuon(const struct rule_step *s);
uint64_t rule_matrices_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor);
uint64_t rule_neurons_kept(const struct optimizer *of, const struct zinf_tensor *tensor,
                           const struct zinf_piece *piece);

/* projected.c */
double rule_galore_flops(const struct optimizer *of, const struct zinf_tensor *tensor,
                         const struct zinf_piece *piece);
double rule_apollo_flops(const struct optimizer *of, const struct zinf_tensor *tensor,
                         const struct zinf_piece *piece);
int rule_step_galore(const struct rule_step *s);
int rule_step_apollo(const struct rule_step *s);
uint64_t rule_galore_kept(const struct optimizer *of, const struct zinf_tensor *tensor,
                          const struct zinf_piece *piece);
uint64_t rule_apollo_kept(const struct optimizer *of, const struct zinf_tensor *tensor,
                          const struct zinf_piece *piece);
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
/* A tensor as Adafactor sees it: the unit's own [rows][cols], one row for a vector; and its
 * moments, in floats from the unit's first. */
struct factors {
    uint64_t rows, cols;
    uint64_t row_offset, col_offset; /* a vector has columns alone */
};
struct factors unit_factors(const struct zinf_unit *unit, uint32_t tensor);

#endif
