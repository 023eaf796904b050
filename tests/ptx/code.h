/*
 * code: instructions as they run. A register is a row of 32 lanes in its warp's file, known by its
 * offset: 4 bytes for a predicate (a bit a lane), else 32 times its width. Constants and special
 * registers have rows of their own, so that every operand is an offset.
 */
#ifndef PTX_CODE_H
#define PTX_CODE_H

#include "ptx.h"

enum ptx_type {
    PTX_NO_TYPE,
    PTX_PRED,
    PTX_U8,
    PTX_S8,
    PTX_U16,
    PTX_S16,
    PTX_F16,
    PTX_BF16,
    PTX_U32,
    PTX_S32,
    PTX_F32,
    PTX_U64,
    PTX_S64,
    PTX_F64,
};
/* .b types are read as unsigned. */
enum ptx_type ptx_type_of(const char *word, size_t n);
unsigned ptx_type_bytes(enum ptx_type type);

enum ptx_space { PTX_GENERIC, PTX_PARAM, PTX_SHARED, PTX_GLOBAL, PTX_LOCAL };

/* How the scheduler takes an instruction. */
enum ptx_kind {
    PTX_PLAIN,    /* any lanes */
    PTX_TOGETHER, /* all lanes of the warp that are still there */
    PTX_BRANCH,
    PTX_EXIT,
    PTX_BARRIER,
};

struct ptx_warp;
struct ptx_instr;
typedef void ptx_exec(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask);

struct ptx_instr {
    ptx_exec *run;
    int32_t guard; /* a predicate; -1: none */
    int32_t d[4], a[4], b[4], c[4];
    int32_t imm;              /* of an address, or the target of a branch */
    uint8_t kind, n;          /* n: of a vector, of matrices */
    bool guard_not, flag;     /* flag: .trans, .sat, an address of 32 bits: as run knows */
    uint8_t mode, space;      /* of a comparison's boolean, of rounding */
    uint8_t d_type, a_type;   /* of a conversion or an access */
    uint8_t d_bytes, a_bytes; /* of the registers */
    const char *text;         /* in the module's, to its ';' */
};

/* Special registers: rows of 32-bit words at the file's start. */
enum ptx_special {
    PTX_TID, /* x, y, z: three rows each */
    PTX_NTID = 3,
    PTX_CTAID = 6,
    PTX_NCTAID = 9,
    PTX_LANEID = 12,
    PTX_WARPID,
    PTX_SPECIALS,
};
enum { PTX_ROW = 4 * PTX_LANES };

struct ptx_param {
    char *name;
    unsigned offset, bytes;
};

struct ptx_kernel {
    struct ptx_module *module;
    struct ptx_kernel *next;
    char *name;
    const char *header, *body, *end; /* of the text: behind the name, behind '{', at its '}' */
    bool translated, good;
    int generation; /* of mutations, which its code has */
    struct ptx_instr *code;
    int n_code;
    unsigned file_bytes, constant_bytes; /* of a warp; specials and constants come first */
    void *constants;                     /* the image of the file's start */
    unsigned shared_bytes, local_bytes, most_threads, param_bytes;
    int n_params;
    unsigned *param_offsets, *param_sizes;
    char **param_names;
    struct ptx_counts counts;
    uint64_t geometries[PTX_MOST_GEOMETRIES]; /* their hashes */
    int n_geometries;
    uint64_t mutants;           /* runs into a planted fault */
    ptx_exec *mutant;           /* what a planted fault runs */
    struct ptx_instr unplanted; /* what stood in its place, */
    int planted;                /* which is this one, counted from 1; 0: there is none */
};

struct ptx_module {
    const char *text;
    size_t n;
    struct ptx_kernel *kernels;
    char *dynamic; /* the name of the dynamic shared memory; NULL: none */
    struct ptx_constant_array *arrays;
};

/* An array of constants in global memory, by its name in a module's text. */
struct ptx_constant_array {
    struct ptx_constant_array *next;
    char *name;
    unsigned char bytes[];
};
/* The address of what ".global ... NAME[N] = {...}" declares; 0: there is none of that name. */
uint64_t ptx_constant_address(struct ptx_module *module, const char *name, size_t n);

/* Fills in code, file, shared memory; false with a fault reported. */
bool ptx_translate(struct ptx_kernel *kernel);
/* The mutation in place of the one before it, or none, if the kernel is not meant. */
void ptx_plant(struct ptx_kernel *kernel);
int ptx_mutation_generation(void);

/* ---- between translate.c and the operations ---- */

/* An operand as written. */
struct ptx_operand {
    enum { PTX_REGISTER, PTX_NUMBER, PTX_ADDRESS, PTX_LIST, PTX_LABEL, PTX_NOTHING } what;
    int32_t at;      /* register, or an address's base */
    uint8_t bytes;   /* of the register: 1 for a predicate */
    int64_t number;  /* or its bits; of an address what is added */
    int n;           /* of a list */
    int32_t list[8]; /* registers; -1: left out */
    uint8_t list_bytes;
    int32_t second; /* of p|q; -1: none */
    bool negated;   /* !p */
};
enum { PTX_MOST_OPERANDS = 6, PTX_MOST_WORDS = 12 };
struct ptx_statement {
    const char *words[PTX_MOST_WORDS]; /* of the opcode between dots */
    int n_words;
    struct ptx_operand operands[PTX_MOST_OPERANDS];
    int n;
    enum ptx_type type; /* the last type among the words */
};
bool ptx_has_word(const struct ptx_statement *s, const char *word);
/* The row of a number of so many bytes. */
struct ptx_builder;
int32_t ptx_constant(struct ptx_builder *b, uint64_t bits, unsigned bytes);
/* An operand's row as a source of so many bytes; -1: it is none. */
int32_t ptx_source(struct ptx_builder *b, const struct ptx_operand *o, unsigned bytes);

/* Each fills in the instruction, or leaves run NULL where it does not know the statement. */
void ptx_choose_lanes(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i);
void ptx_choose_access(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i);
void ptx_choose_warp(struct ptx_builder *b, const struct ptx_statement *s, struct ptx_instr *i);

/* A row of the table of operations on lanes: opcode with its words, widths in bytes (1: a
 * predicate, 0: none). */
struct ptx_lane_op {
    const char *name;
    ptx_exec *run;
    uint8_t d, a, b, c, e; /* e: a fourth source */
};
extern const struct ptx_lane_op ptx_lanes_scalar[], ptx_lanes_avx2[];
const struct ptx_lane_op *ptx_lane_ops(void);

#endif
