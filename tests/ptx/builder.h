/* builder: a kernel while it is translated: its registers, labels, symbols, constants. */
#ifndef PTX_BUILDER_H
#define PTX_BUILDER_H

#include "code.h"

/* Registers %r0 .. %r(n-1), or one by its whole name. */
struct registers {
    char name[48];
    bool many;
    unsigned n;
    uint8_t bytes;
    int32_t first;
};

struct named {
    char *name;
    int64_t value;
};

enum { MOST_REGISTERS = 256, CONSTANTS = 4096 };

struct ptx_builder {
    struct ptx_kernel *kernel;
    struct registers registers[MOST_REGISTERS];
    int n_registers;
    struct named *labels, *symbols; /* places in the code; addresses in shared memory */
    int n_labels, n_symbols;
    struct {
        uint64_t bits;
        unsigned bytes;
        int32_t at;
    } constants[CONSTANTS];
    unsigned file_bytes; /* of registers; constants are placed when all is known */
    char *image;         /* specials and constants */
    unsigned image_bytes, image_room;
    int room; /* of code */
    const char *statement;
    bool failed;
};

/* Registers lie behind the constants, whose number is known last: until then they are marked. */
enum { IS_REGISTER = 1 << 30 };

/* Ends the translation, with the statement. */
void builder_refuse(struct ptx_builder *b, const char *why);
unsigned row_bytes(unsigned bytes); /* of a register */
/* A new row of the file's start; at gets its offset. */
void *builder_row(struct ptx_builder *b, unsigned bytes, int32_t *at);
void builder_add_label(struct ptx_builder *b, const char *name, size_t n, int64_t place);
/* ".reg ..." and ".shared ...", which are cut up. */
void builder_declare(struct ptx_builder *b, char *text);
/* n characters as an operand; a register alone. false: it is none. */
bool builder_operand(struct ptx_builder *b, const char *at, size_t n, struct ptx_operand *to);
bool builder_register(struct ptx_builder *b, const char *name, size_t n, struct ptx_operand *to);
/* Without the blanks at both ends. */
void builder_trim(const char **at, size_t *n);
void builder_free(struct ptx_builder *b);

#endif
