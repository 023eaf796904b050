/*
 * base: the ground floor. Errors, logging, number types, time, sizes, threads.
 *
 * Everything above stands on this header; it stands on nothing. A function that fails returns a
 * negative errno value and leaves one sentence, readable by zinf_error() in the same thread, that
 * names what failed and how to mend it. Libraries never exit, abort or print to standard output.
 *
 * Threads: every function here may be called from any thread.
 */
#ifndef ZINF_BASE_H
#define ZINF_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ZINF_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define ZINF_PRINTF(format_index, first)
#endif

/* ---- errors ---- */

/* { not installed */
/* Stores the message for this thread and returns code (a negative errno value) unchanged. */
int zinf_fail(int code, const char *format, ...) ZINF_PRINTF(2, 3);
/* Puts "context: " before this thread's present message; returns code unchanged. */
int zinf_fail_in(int code, const char *format, ...) ZINF_PRINTF(2, 3);
/* } not installed */
/* The last message of this thread; never NULL, "" when nothing failed yet. Valid until the next
 * failure in this thread. */
const char *zinf_error(void);

/* { not installed */
/* Copies what strangers may have written, from a file or a peer, to be read at a terminal: control
 * characters but the end of a line and the tab, and bytes that are no UTF-8, become \x1b. All
 * sentences and log lines went through it. Returns out, cut where it is full. */
const char *zinf_show_text(char *out, size_t out_bytes, const char *text);
/* How sentences call what users have given: they are written with the command's words, and copied
 * through here. NULL, as at first: they stay. Of the whole process. */
typedef void zinf_speller(char *out, size_t out_bytes, const char *text);
void zinf_spell_by(zinf_speller *by);
const char *zinf_spell(char *out, size_t out_bytes, const char *text); /* and zinf_show_text */
/* } not installed */

/* ---- logging: one line at a time ---- */

enum zinf_log_level {
    ZINF_LOG_ERROR,
    ZINF_LOG_WARN,
    ZINF_LOG_INFO,
    ZINF_LOG_DEBUG,
};
/* Default INFO; the environment variable ZINF_LOG=error|warn|info|debug sets it at first use. */
void zinf_log_set_level(enum zinf_log_level level);
/* Who is given the lines. NULL: nobody is, or standard error where ZINF_LOG is set. */
void zinf_log_set_sink(void (*sink)(enum zinf_log_level level, const char *line, void *arg),
                       void *arg);
/* { not installed */
/* Without a sink lines go to standard error: the command owns it. */
void zinf_log_to_stderr(void);
/* From here on this thread says errors alone: it does what another one tells of. */
void zinf_log_quiet_thread(void);
void zinf_log(enum zinf_log_level level, const char *format, ...) ZINF_PRINTF(2, 3);
/* As zinf_log, but a given key (a string literal) is said once per process. */
void zinf_log_once(enum zinf_log_level level, const char *key, const char *format, ...)
    ZINF_PRINTF(3, 4);
/* } not installed */

/* ---- number types ---- */

/* Storage type of parameters and activations; arithmetic on the host is always fp32. */
enum zinf_dtype {
    ZINF_DTYPE_F32,
    ZINF_DTYPE_BF16,
    ZINF_DTYPE_F16,
    ZINF_DTYPE_COUNT,
};
size_t zinf_dtype_bytes(enum zinf_dtype dtype);
const char *zinf_dtype_name(enum zinf_dtype dtype); /* "fp32", "bf16", "fp16" */
/* Accepts fp32|float32|F32, bf16|bfloat16|BF16, fp16|float16|F16; -EINVAL otherwise. */
int zinf_dtype_parse(const char *name, enum zinf_dtype *out);

/* Round to nearest even; NaN becomes a quiet NaN; exact for values that fit. */
static inline uint16_t zinf_bf16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x0040u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static inline float zinf_bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
/* { not installed */
uint16_t zinf_f16_from_f32(float value);
float zinf_f16_to_f32(uint16_t half);
/* dst[i] = (dst_dtype)src[i] for n elements; the ranges may not overlap. Vectorised, one thread. */
void zinf_convert(void *dst, enum zinf_dtype dst_dtype, const void *src, enum zinf_dtype src_dtype,
                  size_t n);
/* } not installed */

/* ---- CPU ---- */

enum zinf_isa {
    ZINF_ISA_SCALAR,
    ZINF_ISA_AVX2,   /* with FMA and F16C */
    ZINF_ISA_AVX512, /* F, BW, VL, DQ */
    /* Products of bf16 matrices by instructions of their own; all else is AVX-512. */
    ZINF_ISA_AVX512_BF16,
    ZINF_ISA_AMX_BF16, /* tiles, which Linux gives to a process that asks */
};
/* { not installed */
/* The best instruction set that was built, that the CPU and the kernel give and that ZINF_CPU, one
 * of zinf_isa_name(), allows. Each has what those before it have. Resolved once. */
enum zinf_isa zinf_isa(void);
const char *zinf_isa_name(enum zinf_isa isa);
/* } not installed */
/* CPUs that this process may use: affinity mask and cgroup quota, at least 1. OMP_NUM_THREADS is
 * not looked at: a launcher's OMP_NUM_THREADS=1 must not starve us. */
int zinf_cpu_count(void);
/* { not installed */
/* The last-level caches of those CPUs together; 0 where the system does not say. */
uint64_t zinf_cache_bytes(void);

/* ---- time, sizes, small things ---- */

uint64_t zinf_now_ns(void); /* monotonic */
/* } not installed */
/* "4GiB", "4G" (= GiB), "500MB" (decimal), "1.5e9", "4096": bytes. -EINVAL otherwise. */
int zinf_size_parse(const char *text, uint64_t *bytes);
/* "3.21 GiB" into buffer (returned); 16 bytes are enough. */
const char *zinf_size_format(char *buffer, size_t buffer_bytes, uint64_t bytes);

static inline uint64_t zinf_align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}
/* { not installed */

/* Reads a whole file of at most max_bytes into a NUL-terminated heap buffer (caller frees). */
int zinf_file_read(const char *path, size_t max_bytes, char **out, size_t *out_bytes);
/* Makes an empty file PATH.tmp.RANDOM for reading and writing, to be renamed to path; its name is
 * the caller's to free. */
int zinf_file_temporary(const char *path, char **temporary, int *fd);
/* -ELOOP: path is a symbolic link that is not this user's. */
int zinf_check_link(const char *path);
/* Writes to such a file, fsyncs, compares what is on the drive and renames: the file appears whole
 * or not at all. */
int zinf_file_write_atomic(const char *path, const void *data, size_t bytes);
/* Flushes a folder: names made, renamed or removed in it are durable then. */
int zinf_folder_sync(const char *folder);
/* mkdir -p with mode 0777 & ~umask. */
int zinf_make_dirs(const char *path);
/* "dir/name" on the heap, or NULL with an error set. Caller frees. */
char *zinf_path_join(const char *dir, const char *name);
/* } not installed */

#ifdef __cplusplus
}
#endif
#endif
