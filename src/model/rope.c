/*
 * rope: inv_freq[i] = base^(-2i/r), and what scaling makes of it: linear and dynamic (the "NTK"
 * growth of the base), llama3 (slow frequencies divided by the factor, a ramp between), YaRN (Peng
 * et al., arXiv 2309.00071) and LongRoPE (Ding et al., arXiv 2402.13753: a divisor for each pair,
 * of one list for short sequences and another for long ones). In proportional ones (Barbero et al.,
 * arXiv 2410.06205) only the fast pairs of a head turn. In double, rounded once.
 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

static const char original_key[] = "original_max_position_embeddings";

/* What a configuration says, for all kinds together. */
struct scaling {
    const cJSON *object; /* rope_parameters or rope_scaling, or NULL */
    const char *kind;
    double theta, partial, factor, low, high, fast, slow, attention, mscale, mscale_all, alpha;
    bool truncate;
    int64_t original;         /* positions that the model was trained with before the scaling */
    const cJSON *divisors[2]; /* longrope: those of short sequences and of long ones */
};

static int read_object(const struct zinf_model_source *source, const struct rope_source *of,
                       struct scaling *s)
{
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2 && !s->object; i++) {
        const cJSON *object = cJSON_GetObjectItemCaseSensitive(source->config, names[i]);
        if (!object || cJSON_IsNull(object))
            continue;
        if (!cJSON_IsObject(object))
            return zinf_fail(-EINVAL, "%s: %s must be an object or null", source->what, names[i]);
        const cJSON *inner =
            of->layers ? cJSON_GetObjectItemCaseSensitive(object, of->layers) : NULL;
        s->object = cJSON_IsObject(inner) ? inner : object;
    }
    for (const cJSON *item = s->object ? s->object->child : NULL; item; item = item->next)
        if (cJSON_IsObject(item))
            return zinf_fail(-ENOTSUP,
                             "%s: %s: other frequencies for layers of the kind \"%s\" are "
                             "not supported",
                             source->what, names[0], item->string);
    return 0;
}

static int read_scaling(const struct zinf_model_source *source, const struct rope_source *of,
                        struct scaling *s)
{
    const struct {
        const char *key;
        double *out;
    } numbers[] = {
        {"rope_theta", &s->theta},      {"partial_rotary_factor", &s->partial},
        {"factor", &s->factor},         {"low_freq_factor", &s->low},
        {"high_freq_factor", &s->high}, {"beta_fast", &s->fast},
        {"beta_slow", &s->slow},        {"attention_factor", &s->attention},
        {"mscale", &s->mscale},         {"mscale_all_dim", &s->mscale_all},
        {"alpha", &s->alpha},
    };
    int code = read_object(source, of, s);
    /* In an older form two numbers are beside the object. */
    for (size_t i = 0; !code && i < 2; i++)
        code = zinf_json_double(source->config, source->what, numbers[i].key, numbers[i].out);
    if (!code && of->theta_key)
        code = zinf_json_double(source->config, source->what, of->theta_key, &s->theta);
    if (!code && of->partial_key)
        code = zinf_json_double(source->config, source->what, of->partial_key, &s->partial);
    for (size_t i = 0; !code && s->object && i < sizeof numbers / sizeof *numbers; i++)
        code = zinf_json_double(s->object, source->what, numbers[i].key, numbers[i].out);
    if (code || !s->object)
        return code;
    if ((code = zinf_json_string(s->object, source->what, "type", &s->kind)) ||
        (code = zinf_json_string(s->object, source->what, "rope_type", &s->kind)) ||
        (code = zinf_json_bool(s->object, source->what, "truncate", &s->truncate)))
        return code;
    s->divisors[0] = cJSON_GetObjectItemCaseSensitive(s->object, "short_factor");
    s->divisors[1] = cJSON_GetObjectItemCaseSensitive(s->object, "long_factor");
    code = zinf_json_int(s->object, source->what, original_key, &s->original);
    /* A key beside the object counts more than the one in it. */
    return code ? code : zinf_json_int(source->config, source->what, original_key, &s->original);
}

/* ---- kinds ---- */

static double frequency(double base, int64_t i, int64_t dims)
{
    return pow(base, -2.0 * (double)i / (double)dims);
}

static double llama3_frequency(const struct scaling *s, double inv)
{
    double turns = (double)s->original * inv / (2 * M_PI); /* over the original length */
    if (turns < s->low)
        return inv / s->factor;
    if (turns > s->high || s->high == s->low)
        return inv;
    double ramp = (turns - s->low) / (s->high - s->low);
    return (1 - ramp) * inv / s->factor + ramp * inv;
}

/* The pair that makes so many turns over the original length, as a real number. */
static double yarn_pair(const struct scaling *s, int64_t dims, double turns)
{
    return (double)dims * log((double)s->original / (turns * 2 * M_PI)) / (2 * log(s->theta));
}

static double yarn_frequency(const struct scaling *s, int64_t dims, int64_t i, double inv)
{
    double low = yarn_pair(s, dims, s->fast), high = yarn_pair(s, dims, s->slow);
    if (s->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(dims - 1));
    if (low == high)
        high += 0.001; /* avoids a division by zero, as other implementations do */
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return inv / s->factor * ramp + inv * (1 - ramp);
}

static double yarn_magnitude(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The factor by which YaRN lengthens cosines and sines. */
static double yarn_scale(const struct scaling *s)
{
    if (s->attention > 0)
        return s->attention;
    if (s->mscale > 0 && s->mscale_all > 0)
        return yarn_magnitude(s->factor, s->mscale) / yarn_magnitude(s->factor, s->mscale_all);
    return yarn_magnitude(s->factor, 1);
}

/* LongRoPE's factor for cosines and sines, by how much longer sequences may get. */
static double long_scale(const struct scaling *s)
{
    if (s->attention > 0)
        return s->attention;
    return s->factor <= 1 ? 1 : sqrt(1 + log(s->factor) / log((double)s->original));
}

/* ---- reading ---- */

enum kind {
    KIND_DEFAULT,
    KIND_LINEAR,
    KIND_DYNAMIC,
    KIND_BANDS,
    KIND_YARN,
    KIND_LONG,
    KIND_PROPORTIONAL, /* only fast pairs turn, with the frequencies of the default kind */
    KINDS,
};

/* longrope's factor is the quotient of the new and the original length unless a key gives it. */
static int find_kind(const struct zinf_model_source *source, const struct rope_source *of,
                     struct scaling *s, enum kind *out)
{
    static const char *const names[KINDS] = {"default", "linear",   "dynamic",     "llama3",
                                             "yarn",    "longrope", "proportional"};
    int kind = 0;
    if (of->original && (!strcmp(s->kind, "su") || !strcmp(s->kind, "yarn")))
        s->kind = names[KIND_LONG];
    while (kind < KINDS && strcmp(s->kind, names[kind]))
        kind++;
    *out = (enum kind)kind;
    if (kind == KIND_LONG && s->original > 0 && !cJSON_HasObjectItem(s->object, "factor"))
        s->factor = (double)of->positions / (double)s->original;
    bool alone = of->unscaled || of->original;
    if (alone && kind != KIND_DEFAULT && !(of->original && kind == KIND_LONG))
        return zinf_fail(-ENOTSUP, "%s: rope_type \"%s\" is not supported for %s; use default%s",
                         source->what, s->kind, source->family->model_type,
                         of->original ? " or longrope" : "");
    if (kind < KINDS)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: rope_type \"%s\" is not supported; use default, linear, dynamic, llama3, "
                     "yarn, longrope or proportional",
                     source->what, s->kind);
}

/* Checks that there is a divisor above 0 for each pair. */
static int check_divisors(const struct zinf_model_source *source, const struct scaling *s,
                          int64_t dims)
{
    static const char *const names[] = {"short_factor", "long_factor"};
    for (int i = 0; i < 2; i++) {
        const cJSON *list = s->divisors[i], *item = NULL;
        int64_t n = 0;
        if (cJSON_IsArray(list))
            cJSON_ArrayForEach(item, list) n += cJSON_IsNumber(item) && item->valuedouble > 0;
        if (n != dims / 2 || cJSON_GetArraySize(list) != dims / 2)
            return zinf_fail(-EINVAL, "%s: %s must be a list of %lld numbers above 0", source->what,
                             names[i], (long long)dims / 2);
    }
    return 0;
}

static int check_scaling(const struct zinf_model_source *source, const struct scaling *s,
                         enum kind kind, int64_t dims)
{
    const double least = kind == KIND_LONG ? 0 : 1;
    if (dims < 2 || dims % 2 || dims > 2 * ZINF_ROPE_MAX_PAIRS ||
        (kind == KIND_DYNAMIC && dims < 4))
        return zinf_fail(-ENOTSUP,
                         "%s: %lld rotated elements of a head; they must be even and at "
                         "most %d",
                         source->what, (long long)dims, 2 * ZINF_ROPE_MAX_PAIRS);
    if (!(s->theta > 1) || !(s->theta < 1e18))
        return zinf_fail(-EINVAL, "%s: rope_theta is %g; it must be above 1", source->what,
                         s->theta);
    if (kind != KIND_DEFAULT && (!(s->factor >= least) || !(s->factor < 1e9) || s->original < 1))
        return zinf_fail(-EINVAL,
                         "%s: rope_type %s with factor %g of %lld positions is out of range",
                         source->what, s->kind, s->factor, (long long)s->original);
    if (kind == KIND_BANDS && !(s->low > 0 && s->high >= s->low))
        return zinf_fail(-EINVAL,
                         "%s: low_freq_factor %g must be above 0 and at most high_freq_factor %g",
                         source->what, s->low, s->high);
    if (kind == KIND_LONG)
        return check_divisors(source, s, dims);
    if (kind == KIND_YARN && !(s->slow > 0 && s->fast >= s->slow))
        return zinf_fail(-EINVAL, "%s: beta_slow %g must be above 0 and at most beta_fast %g",
                         source->what, s->slow, s->fast);
    return 0;
}

/* Makes the frequencies in the graph's memory. divisors: of longrope. turning: how many pairs
 * turn. */
static const float *make(struct zinf_graph *graph, const struct scaling *s, enum kind kind,
                         int64_t dims, int64_t turning, const cJSON *divisors)
{
    const cJSON *divisor = kind == KIND_LONG ? divisors->child : NULL;
    float *inv_freq = zinf_graph_take(graph, (size_t)dims / 2 * sizeof *inv_freq);
    for (int64_t i = 0; inv_freq && i < turning; i++) {
        double inv = frequency(s->theta, i, dims);
        if (divisor) {
            inv /= divisor->valuedouble;
            divisor = divisor->next;
        }
        if (kind == KIND_LINEAR || kind == KIND_PROPORTIONAL)
            inv /= s->factor;
        else if (kind == KIND_BANDS)
            inv = llama3_frequency(s, inv);
        else if (kind == KIND_YARN)
            inv = yarn_frequency(s, dims, i, inv);
        inv_freq[i] = (float)inv;
    }
    return inv_freq;
}

int rope_read(struct zinf_graph *graph, const struct zinf_model_source *source,
              const struct rope_source *of, struct rope_spec *out, int64_t *context)
{
    struct scaling s = {.kind = of->kind ? of->kind : "default",
                        .theta = of->theta,
                        .partial = of->partial > 0 ? of->partial : 1,
                        .factor = 1,
                        .low = 1,
                        .high = 4,
                        .fast = 32,
                        .slow = 1,
                        .truncate = true,
                        .original = of->original ? of->original : of->positions};
    enum kind kind = KIND_DEFAULT;
    int code = read_scaling(source, of, &s);
    if (!code)
        code = find_kind(source, of, &s, &kind);
    const bool valid = s.partial > 0 && s.partial <= 1;
    const double share = valid ? (double)of->head_dim * s.partial : 0;
    const bool whole = valid && kind == KIND_PROPORTIONAL;
    const int64_t dims = whole ? of->head_dim : (int64_t)share;
    const int64_t turning = whole ? (int64_t)(share / 2) : dims / 2;
    if (!code)
        code = check_scaling(source, &s, kind, dims);
    if (code)
        return code;
    if (kind == KIND_DYNAMIC && of->has_alpha && s.alpha > 0) {
        kind = KIND_DEFAULT;
        s.theta *= pow(s.alpha, (double)dims / (double)(dims - 2));
    }
    *out = (struct rope_spec){
        .rotary_dims = dims,
        .scale = kind == KIND_YARN   ? (float)yarn_scale(&s)
                 : kind == KIND_LONG ? (float)long_scale(&s)
                                     : 1,
        .inv_freq = make(graph, &s, kind, dims, turning, s.divisors[0]),
        .long_inv_freq =
            kind == KIND_LONG ? make(graph, &s, kind, dims, turning, s.divisors[1]) : NULL,
        .base = s.theta,
        .factor = kind == KIND_DYNAMIC ? s.factor : 0,
        .positions = kind == KIND_LONG ? s.original : of->positions,
    };
    /* Folders may have the unscaled length in max_position_embeddings; where frequencies are scaled
     * by bands it is the model's, which may be less than the factor says. */
    const bool grows = kind == KIND_LINEAR || kind == KIND_DYNAMIC || kind == KIND_YARN;
    double longest = (double)s.original * s.factor;
    *context = of->positions;
    if (grows && longest > (double)of->positions && longest < 1 << 24)
        *context = (int64_t)longest;
    return 0;
}

const float *rope_frequencies(const struct rope_spec *s, int64_t seq,
                              float memory[ZINF_ROPE_MAX_PAIRS])
{
    double dims = (double)s->rotary_dims, length = (double)seq / (double)s->positions;
    if (s->still) {
        memset(memory, 0, ZINF_ROPE_MAX_PAIRS * sizeof *memory);
        return memory;
    }
    if (!rope_changes(s, seq))
        return s->inv_freq;
    if (s->long_inv_freq)
        return s->long_inv_freq;
    double base = s->base * pow(s->factor * length - (s->factor - 1), dims / (dims - 2));
    for (int64_t i = 0; i < s->rotary_dims / 2; i++)
        memory[i] = (float)frequency(base, i, s->rotary_dims);
    return memory;
}
