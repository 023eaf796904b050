/*
 * shadow_rules: when an access is good, and what it leaves in the shadow, for so many bytes as the
 * caller's code says: where that is a constant the compiler takes them together.
 */
#ifndef PTX_SHADOW_RULES_H
#define PTX_SHADOW_RULES_H

#include "shadow.h"

#include <string.h>

#define SHADOW_INLINE static inline __attribute__((always_inline))

SHADOW_INLINE uint32_t shadow_moment(unsigned thread)
{
    return shadow_clock.now << SHADOW_BITS | thread;
}

SHADOW_INLINE uint32_t shadow_who(uint32_t then)
{
    return then & ((1u << SHADOW_BITS) - 1);
}

/* Whether an access at that moment is unordered with one of this thread now. */
SHADOW_INLINE bool shadow_races(uint32_t then, unsigned thread)
{
    const uint32_t segment = then >> SHADOW_BITS, who = shadow_who(then);
    if (segment < shadow_clock.launch)
        return false;
    if (who == SHADOW_BLOCKS || segment < shadow_clock.block)
        return true; /* of another block */
    return segment == shadow_clock.now && who != thread;
}

SHADOW_INLINE bool shadow_is_pending(uint32_t then)
{
    return shadow_who(then) == SHADOW_PENDING && then >> SHADOW_BITS >= shadow_clock.block;
}

/* The last readers, with this one. */
SHADOW_INLINE uint32_t shadow_with_reader(uint32_t then, unsigned thread)
{
    const uint32_t segment = then >> SHADOW_BITS, who = shadow_who(then);
    if (segment >= shadow_clock.launch && (who == SHADOW_BLOCKS || segment < shadow_clock.block))
        return shadow_moment(SHADOW_BLOCKS);
    return shadow_moment(segment == shadow_clock.now && who != thread ? SHADOW_MANY : thread);
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

SHADOW_INLINE enum shadow_finding shadow_read_of(struct shadow *s, size_t at, unsigned n,
                                                 unsigned thread, uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    const unsigned each = shadow_same(writer, n) && shadow_same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (!writer[i])
            return SHADOW_UNWRITTEN;
        if (shadow_is_pending(writer[i]))
            return SHADOW_LANDING;
        if (shadow_races(writer[i], thread))
            return SHADOW_RACE_READ;
        const uint32_t with = shadow_with_reader(reader[i], thread);
        if (each == n)
            shadow_fill(reader, n, with);
        else
            reader[i] = with;
    }
    return SHADOW_GOOD;
}

SHADOW_INLINE enum shadow_finding shadow_write_of(struct shadow *s, size_t at, unsigned n,
                                                  unsigned thread, uint32_t as, uint32_t *other)
{
    uint32_t *writer = s->writer + at, *reader = s->reader + at;
    const unsigned each = shadow_same(writer, n) && shadow_same(reader, n) ? n : 1;
    for (unsigned i = 0; i < n; i += each) {
        *other = writer[i];
        if (shadow_is_pending(writer[i]))
            return SHADOW_LANDING;
        if (shadow_races(writer[i], thread))
            return SHADOW_RACE_WRITE;
        *other = reader[i];
        if (reader[i] && shadow_races(reader[i], thread))
            return SHADOW_RACE_WRITE;
        if (each == n)
            shadow_fill(writer, n, as);
        else
            writer[i] = as;
    }
    return SHADOW_GOOD;
}

#endif
