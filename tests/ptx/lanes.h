/*
 * lanes: operations that every lane makes for itself, on whole rows: compiled once per instruction
 * set, as loops of 32 that the compiler turns into vectors. A name in the table is the opcode with
 * its words; the widths are those of its registers.
 */
#ifndef PTX_LANES_H
#define PTX_LANES_H

#include "block.h"

#include <math.h>
#include <string.h>

#define OPERATION(name)                                                                            \
    static void name(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
#define FOR_LANES for (int l = 0; l < PTX_LANES; l++)

/* Those of the lanes that take part. */
#define KEEP(T, result)                                                                            \
    do {                                                                                           \
        T *to_ = ROW(w, i->d[0]);                                                                  \
        if (mask == UINT32_MAX)                                                                    \
            memcpy(to_, result, sizeof(T) * PTX_LANES);                                            \
        else                                                                                       \
            FOR_LANES to_[l] = mask >> l & 1 ? (result)[l] : to_[l];                               \
    } while (0)

#define OP1(name, D, A, value)                                                                     \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }
#define OP2(name, D, A, B, value)                                                                  \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        const B *b = ROW(w, i->b[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            const B y = b[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }
#define OP3(name, D, A, B, C, value)                                                               \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        const B *b = ROW(w, i->b[0]);                                                              \
        const C *c = ROW(w, i->c[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            const B y = b[l];                                                                      \
            const C z = c[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }

#include "lanes_integer.h"

#include "lanes_float.h"

#include "lanes_table.h"

#endif
