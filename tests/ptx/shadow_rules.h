/*
 * shadow_rules: when an access is good, and what it leaves in the shadow, for so many bytes as the
 * caller's code says: where that is a constant the compiler takes them together. The clock is
 * handed over, so that it is known not to change while shadows are written.
 */
#ifndef PTX_SHADOW_RULES_H
#define PTX_SHADOW_RULES_H

#include "shadow.h"

#include <string.h>

#define SHADOW_INLINE static inline __attribute__((always_inline))

SHADOW_INLINE uint32_t shadow_moment(struct shadow_clock c, unsigned thread)
{
    return c.now << SHADOW_BITS | thread;
}

SHADOW_INLINE uint32_t shadow_who(uint32_t then)
{
    return then & ((1u << SHADOW_BITS) - 1);
}

/* Whether an access at that moment is unordered with one of this thread now. */
SHADOW_INLINE bool shadow_races(struct shadow_clock c, uint32_t then, unsigned thread)
{
    const uint32_t segment = then >> SHADOW_BITS, who = shadow_who(then);
    if (segment < c.launch)
        return false;
    if (who == SHADOW_BLOCKS || segment < c.block)
        return true; /* of another block */
    return segment == c.now && who != thread;
}

SHADOW_INLINE bool shadow_is_pending(struct shadow_clock c, uint32_t then)
{
    return shadow_who(then) == SHADOW_PENDING && then >> SHADOW_BITS >= c.block;
}

/* The last readers, with this one. */
SHADOW_INLINE uint32_t shadow_with_reader(struct shadow_clock c, uint32_t then, unsigned thread)
{
    const uint32_t segment = then >> SHADOW_BITS, who = shadow_who(then);
    if (segment >= c.launch && (who == SHADOW_BLOCKS || segment < c.block))
        return shadow_moment(c, SHADOW_BLOCKS);
    return shadow_moment(c, segment == c.now && who != thread ? SHADOW_MANY : thread);
}

/* Whether n moments are one and the same, as they are for the bytes of an element. */
SHADOW_INLINE bool shadow_same(const uint32_t *moments, unsigned n)
{
    uint32_t different = 0;
    for (unsigned i = 1; i < n; i++)
        different |= moments[i] ^ moments[0];
    return !different;
}

SHADOW_INLINE void shadow_fill(uint32_t *moments, unsigned n, uint32_t with)
{
    for (unsigned i = 0; i < n; i++)
        moments[i] = with;
}

SHADOW_INLINE enum shadow_finding shadow_read_of(struct shadow_clock c, struct shadow *s, size_t at,
                                                 unsigned n, unsigned thread, uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    const unsigned each = shadow_same(writer, n) && shadow_same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (!writer[i])
            return SHADOW_UNWRITTEN;
        if (shadow_is_pending(c, writer[i]))
            return SHADOW_LANDING;
        if (shadow_races(c, writer[i], thread))
            return SHADOW_RACE_READ;
        const uint32_t with = shadow_with_reader(c, reader[i], thread);
        if (each == n)
            shadow_fill(reader, n, with);
        else
            reader[i] = with;
    }
    return SHADOW_GOOD;
}

SHADOW_INLINE enum shadow_finding shadow_write_of(struct shadow_clock c, struct shadow *s,
                                                  size_t at, unsigned n, unsigned thread,
                                                  uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    const unsigned each = shadow_same(writer, n) && shadow_same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (shadow_is_pending(c, writer[i]))
            return SHADOW_LANDING;
        if (shadow_races(c, writer[i], thread))
            return SHADOW_RACE_WRITE;
        *other = reader[i];
        if (reader[i] && shadow_races(c, reader[i], thread))
            return SHADOW_RACE_WRITE;
        if (each == n)
            shadow_fill(writer, n, shadow_moment(c, thread));
        else
            writer[i] = shadow_moment(c, thread);
    }
    return SHADOW_GOOD;
}

#endif
