/* pulse: one time and one sentence a pulse; the rest is who has which. */
#include "base/pulse.h"

enum { GOES_ON, IS_WRITTEN, ENDED };

static struct zinf_pulse process;
static _Thread_local struct zinf_pulse *own;

void zinf_pulse_init(struct zinf_pulse *pulse, struct zinf_pulse *above)
{
    *pulse = (struct zinf_pulse){.above = above, .beat_ns = zinf_now_ns()};
}

struct zinf_pulse *zinf_pulse_of_thread(void)
{
    return own ? own : &process;
}

struct zinf_pulse *zinf_pulse_of_process(void)
{
    return &process;
}

void zinf_pulse_set(struct zinf_pulse *pulse)
{
    own = pulse;
}

int zinf_pulse_beat(void)
{
    uint64_t now = zinf_now_ns();
    for (struct zinf_pulse *p = zinf_pulse_of_thread(); p; p = p->above) {
        __atomic_store_n(&p->beat_ns, now, __ATOMIC_RELAXED);
        if (__atomic_load_n(&p->ended, __ATOMIC_ACQUIRE) == ENDED)
            return zinf_fail(p->code, "%s", p->why);
    }
    return 0;
}

uint64_t zinf_pulse_last_ns(const struct zinf_pulse *pulse)
{
    return __atomic_load_n(&pulse->beat_ns, __ATOMIC_RELAXED);
}

void zinf_pulse_follow(struct zinf_pulse *pulse, uint64_t last_ns)
{
    for (struct zinf_pulse *p = pulse; p; p = p->above) {
        uint64_t had = zinf_pulse_last_ns(p);
        while (had < last_ns && !__atomic_compare_exchange_n(&p->beat_ns, &had, last_ns, true,
                                                             __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            ;
    }
}

void zinf_pulse_end(struct zinf_pulse *pulse, int code, const char *why)
{
    int goes_on = GOES_ON;
    size_t bytes = strlen(why);
    if (!__atomic_compare_exchange_n(&pulse->ended, &goes_on, IS_WRITTEN, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    bytes = bytes < sizeof pulse->why ? bytes : sizeof pulse->why - 1;
    memcpy(pulse->why, why, bytes);
    pulse->why[bytes] = 0;
    pulse->code = code;
    __atomic_store_n(&pulse->ended, ENDED, __ATOMIC_RELEASE);
}
