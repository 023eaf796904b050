/*
 * base: errors, logging, number types, time, sizes and threads. It includes no other header of
 * zinf; all others may include it.
 *
 * A function that fails returns a negative errno value and leaves one sentence, which zinf_error()
 * returns in the same thread. The sentence says what failed and how to fix it. The library never
 * exits, aborts or prints to standard output.
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
/* Puts "context: " in front of this thread's current message; returns code unchanged. */
int zinf_fail_in(int code, const char *format, ...) ZINF_PRINTF(2, 3);
/* } not installed */
/* The message of this thread's last failure, or "" if nothing has failed; never NULL. Valid until
 * the next failure in this thread. */
const char *zinf_error(void);

/* { not installed */
/* Copies untrusted text, from a file or a peer, so that it is safe to show on a terminal: control
 * characters except newline and tab, and bytes that are not UTF-8, are written as \xHH. Messages
 * and log lines are copied by it. Returns out; a text that is too long is cut. */
const char *zinf_show_text(char *out, size_t out_bytes, const char *text);
/* Messages are written with the command's option names (--seq-len). This function rewrites them for
 * callers that know options by other names; it copies text to out. NULL, the default, changes
 * nothing. One setting for the whole process. */
typedef void zinf_speller(char *out, size_t out_bytes, const char *text);
void zinf_spell_by(zinf_speller *by);
const char *zinf_spell(char *out, size_t out_bytes, const char *text); /* also does what
                                                                        * zinf_show_text does */
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
/* Sets the function that receives log lines. NULL, the default: lines are dropped, or go to
 * standard error if ZINF_LOG is set. */
void zinf_log_set_sink(void (*sink)(enum zinf_log_level level, const char *line, void *arg),
                       void *arg);
/* { not installed */
/* Lines go to standard error if there is no sink. For the command only. */
void zinf_log_to_stderr(void);
/* From now on this thread logs only errors, because another thread logs the same work. */
void zinf_log_quiet_thread(void);
void zinf_log(enum zinf_log_level level, const char *format, ...) ZINF_PRINTF(2, 3);
/* As zinf_log, but logs a given key (a string literal) once per process. */
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
    /* AVX-512 with instructions for bf16 matrix products */
    ZINF_ISA_AVX512_BF16,
    ZINF_ISA_AMX_BF16, /* tile registers; a process must request them from Linux */
};
/* { not installed */
/* The best instruction set that is compiled in, supported by CPU and kernel, and allowed by the
 * environment variable ZINF_CPU (a name of zinf_isa_name()). Each includes those listed before it.
 * Determined once. */
enum zinf_isa zinf_isa(void);
const char *zinf_isa_name(enum zinf_isa isa);
/* } not installed */
/* Number of CPUs that this process may use, by affinity mask and cgroup quota; at least 1.
 * OMP_NUM_THREADS is ignored, because launchers set it to 1. */
int zinf_cpu_count(void);
/* { not installed */
/* Restricts the calling thread to those of its CPUs that belong to a NUMA node, by the tree at
 * sysfs ("/sys"). Does nothing if node < 0, if the node is not known there, or if it has none of
 * the CPUs. */
void zinf_thread_near(const char *sysfs, int node);
/* Total bytes of the last-level caches of the CPUs that this process may use; 0: not known. */
uint64_t zinf_cache_bytes(void);

/* ---- time, sizes, small things ---- */

uint64_t zinf_now_ns(void); /* monotonic */
/* } not installed */
/* Parses a size in bytes: "4GiB", "4G" (= GiB), "500MB" (decimal), "1.5e9", "4096". -EINVAL
 * otherwise. */
int zinf_size_parse(const char *text, uint64_t *bytes);
/* Writes a text like "3.21 GiB" into buffer and returns buffer; 16 bytes are enough. */
const char *zinf_size_format(char *buffer, size_t buffer_bytes, uint64_t bytes);

static inline uint64_t zinf_align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}
/* { not installed */

/* Reads a whole file of at most max_bytes into a NUL-terminated heap buffer (caller frees). */
int zinf_file_read(const char *path, size_t max_bytes, char **out, size_t *out_bytes);
/* Creates an empty file PATH.tmp.RANDOM for reading and writing, which the caller renames to path
 * later. The caller frees *temporary, its name. */
int zinf_file_temporary(const char *path, char **temporary, int *fd);
/* -ELOOP if path is a symbolic link that another user owns. */
int zinf_check_link(const char *path);
/* Writes to a temporary file, fsyncs it, reads it back and compares, and renames it: readers see
 * the whole file or none. */
int zinf_file_write_atomic(const char *path, const void *data, size_t bytes);
/* Flushes a folder (fsync): files created, renamed or removed in it before are durable
 * afterwards. */
int zinf_folder_sync(const char *folder);
/* mkdir -p with mode 0777 & ~umask. */
int zinf_make_dirs(const char *path);
/* Returns "dir/name", which the caller frees, or NULL with an error set. */
char *zinf_path_join(const char *dir, const char *name);
/* } not installed */

#ifdef __cplusplus
}
#endif
#endif
