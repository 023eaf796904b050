/*
 * formats: files that others read and write: safetensors (single and sharded), Hugging Face model
 * folders, token files. Knows names, dtypes, shapes and bytes, nothing of models.
 *
 * Every header is untrusted: lengths, offsets, overlaps, gaps, dtype sizes, duplicate names and
 * counts are checked before anything is believed. Memory stays bounded by the header, never by the
 * data. Writers write to a temporary name, fsync and rename: a file appears whole or not at all.
 *
 * Threads: an object belongs to one thread at a time; reading one reader's tensors from several
 * threads is allowed (pread).
 */
#ifndef ZINF_FORMATS_H
#define ZINF_FORMATS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_TENSOR_MAX_RANK 8

/* dtypes of the file format; only the floating ones convert to zinf_dtype. */
enum zinf_file_dtype {
    ZINF_FILE_BOOL,
    ZINF_FILE_U8,
    ZINF_FILE_I8,
    ZINF_FILE_F8_E5M2,
    ZINF_FILE_F8_E4M3,
    ZINF_FILE_I16,
    ZINF_FILE_U16,
    ZINF_FILE_F16,
    ZINF_FILE_BF16,
    ZINF_FILE_I32,
    ZINF_FILE_U32,
    ZINF_FILE_F32,
    ZINF_FILE_F64,
    ZINF_FILE_I64,
    ZINF_FILE_U64,
    ZINF_FILE_DTYPES,
};
const char *zinf_file_dtype_name(enum zinf_file_dtype dtype); /* "F32", "BF16", ... */
size_t zinf_file_dtype_bytes(enum zinf_file_dtype dtype);
/* 0 and *out for F32, BF16, F16; -ENOTSUP otherwise. */
int zinf_file_dtype_to_dtype(enum zinf_file_dtype dtype, enum zinf_dtype *out);
enum zinf_file_dtype zinf_file_dtype_from_dtype(enum zinf_dtype dtype);
/* "[2, 3]" into buffer. */
const char *zinf_shape_text(char *buffer, size_t bytes, int rank, const uint64_t *shape);

struct zinf_tensor_view;
struct zinf_tensor_info {
    const char *name; /* owned by the reader */
    enum zinf_file_dtype dtype;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK];
    uint64_t n_elems;
    uint64_t bytes;
    uint32_t file;        /* index of the shard in a folder, 0 for a single file */
    uint64_t file_offset; /* absolute, of the first byte */
    /* Where the others are; NULL: they follow it, as in every file but some of PyTorch's. The
     * reader's. */
    const struct zinf_tensor_view *view;
};

/* ---- reading ---- */

struct zinf_tensors; /* the tensors of a file, or of all shards of a folder */
/* path: a .safetensors file, one of torch.save (PyTorch 1.6 or later), a GGUF file (all tensors
 * are read as F32, under llama.cpp's names), or a folder with
 * model.safetensors, model.safetensors.index.json, pytorch_model.bin,
 * pytorch_model.bin.index.json, model.gguf.index.json, model.layers.index.json or a checkpoint of
 * DeepSpeed's; the first of these that is there is read. Of a pickle nothing is run: what is not a
 * dictionary of tensors is refused by name. Tensors of such a file may share bytes. */
int zinf_tensors_open(struct zinf_tensors **out, const char *path);
void zinf_tensors_close(struct zinf_tensors *tensors);
uint64_t zinf_tensors_count(const struct zinf_tensors *tensors);
const struct zinf_tensor_info *zinf_tensors_at(const struct zinf_tensors *tensors, uint64_t index);
const struct zinf_tensor_info *zinf_tensors_find(const struct zinf_tensors *tensors,
                                                 const char *name); /* NULL: none */
/* How a tensor is stored: its dtype's name, or that of GGUF's blocks, and the bytes of that. */
const char *zinf_tensor_stored(const struct zinf_tensor_info *info, uint64_t *bytes);
const char *zinf_tensors_file_name(const struct zinf_tensors *tensors, uint32_t file);
uint32_t zinf_tensors_file_count(const struct zinf_tensors *tensors);
/* "safetensors", "PyTorch", "DeepSpeed", "GGUF" */
const char *zinf_tensors_file_kind(const struct zinf_tensors *tensors);
/* "__metadata__" value of the first file, or NULL. */
const char *zinf_tensors_metadata(const struct zinf_tensors *tensors, const char *key);
/* Reads elements [first, first + n) of a tensor as stored. */
int zinf_tensors_read(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, void *out);
/* The same converted to fp32 (F32, BF16, F16, F64 only). */
int zinf_tensors_read_f32(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, float *out);

/* All names, types and shapes as one number. */
uint64_t zinf_tensors_layout(const struct zinf_tensors *tensors);
/* From now on what is read is summed, while one thread alone reads. */
int zinf_tensors_sum_begin(struct zinf_tensors *tensors);
/* Of all bytes of the tensors in a file, whose order and places do not count: what was not read
 * yet, or not in order, is read. */
int zinf_tensors_sum(struct zinf_tensors *tensors, uint32_t file, uint64_t *out);

/* ---- checkpoints of DeepSpeed's, in any of its stages ---- */

enum zinf_training_part {
    ZINF_TRAINING_MASTER, /* fp32; what is not trained as it is */
    ZINF_TRAINING_MOMENT1,
    ZINF_TRAINING_MOMENT2,
    ZINF_TRAINING_PARTS,
};
struct zinf_training_state {
    uint64_t step, n_skipped; /* steps taken, and of these without an update */
    uint64_t n_samples;       /* sequences that they saw */
    uint32_t world;
    bool optimized; /* there are moments */
};
/* One array of a checkpoint: folder is DeepSpeed's tag, or the one above with "latest". -ENODATA
 * without a message: it is none of DeepSpeed's. */
int zinf_tensors_open_training(struct zinf_tensors **out, const char *folder,
                               enum zinf_training_part part);
int zinf_training_state_read(struct zinf_training_state *out, const char *folder);

/* ---- writing: declare all tensors first, then stream the data in the same order ---- */

struct zinf_tensors_writer;
#define ZINF_TENSORS_WRITER_BYTES (4u << 20) /* what a writer holds beside its table of tensors */
struct zinf_tensors_writer_options {
    const char *path; /* a folder (sharded as model-0000i-of-0000n) or a .safetensors file */
    bool single_file; /* path is the file */
    uint64_t max_shard_bytes; /* folders; 0: 5e9 */
};
int zinf_tensors_writer_create(struct zinf_tensors_writer **out,
                               const struct zinf_tensors_writer_options *options);
int zinf_tensors_writer_declare(struct zinf_tensors_writer *writer, const char *name,
                                enum zinf_file_dtype dtype, int rank, const uint64_t *shape);
/* After the last declare: writes the header(s). */
int zinf_tensors_writer_begin(struct zinf_tensors_writer *writer);
/* Appends bytes of the tensors in the order of declaration; calls may cut anywhere. Data is
 * written with bounded memory and does not stay in the page cache. */
int zinf_tensors_writer_append(struct zinf_tensors_writer *writer, const void *data,
                               uint64_t bytes);
/* Checks that every byte was given, fsyncs, renames, writes the index file. */
int zinf_tensors_writer_finish(struct zinf_tensors_writer *writer);
/* After finish: file i of those with tensors (not the index), as it was handed to the drive; false
 * behind the last. name is the writer's. */
struct zinf_written_file {
    const char *name; /* without folder */
    uint64_t bytes, xxh3;
};
bool zinf_tensors_writer_file(const struct zinf_tensors_writer *writer, uint32_t i,
                              struct zinf_written_file *out);
/* Frees; before finish it removes what was written. NULL is allowed. */
void zinf_tensors_writer_destroy(struct zinf_tensors_writer *writer);

/* ---- GGUF: files of llama.cpp's ----
 *
 * Keys with values, then tensors; version 3, little endian. A writer takes all keys and
 * declarations first, then the numbers of the tensors in the order in which they were declared, in
 * fp32, and stores them as each was declared: in blocks of 32 that have a scale of their own, or in
 * a number type. Memory is a block of a few MiB beside keys and declarations. What could not be
 * kept for want of memory zinf_gguf_begin tells. One thread. */

/* How numbers are stored; the values are the format's. */
enum zinf_gguf_form {
    ZINF_GGUF_F32 = 0,
    ZINF_GGUF_F16 = 1,
    ZINF_GGUF_Q4_0 = 2,
    ZINF_GGUF_Q8_0 = 8,
    ZINF_GGUF_Q4_K = 12, /* blocks of 256, as Q6_K */
    ZINF_GGUF_Q6_K = 14,
    ZINF_GGUF_BF16 = 30,
};
#define ZINF_GGUF_BLOCK 32 /* of Q4_0 and Q8_0; a row of such a tensor is a multiple */
/* "q8_0"; -EINVAL with the names that there are. */
int zinf_gguf_form_parse(const char *name, enum zinf_gguf_form *out);
uint64_t zinf_gguf_block_elems(enum zinf_gguf_form form);
uint64_t zinf_gguf_bytes(enum zinf_gguf_form form, uint64_t n); /* n: whole blocks */
const char *zinf_gguf_form_name(enum zinf_gguf_form form);      /* "Q8_0", as ggml has it */
bool zinf_gguf_form_known(uint32_t form);
/* n: whole blocks, as everywhere; stored need not be aligned. */
void zinf_gguf_unpack(enum zinf_gguf_form form, const void *stored, uint64_t n, float *out);
void zinf_gguf_pack(enum zinf_gguf_form form, const float *values, uint64_t n, void *out);

struct zinf_gguf_writer;
int zinf_gguf_writer_create(struct zinf_gguf_writer **out, const char *path);
/* Removes what was written, unless it was finished. NULL is allowed. */
void zinf_gguf_writer_destroy(struct zinf_gguf_writer *writer);

void zinf_gguf_text(struct zinf_gguf_writer *writer, const char *key, const char *text);
void zinf_gguf_u32(struct zinf_gguf_writer *writer, const char *key, uint32_t value);
void zinf_gguf_f32(struct zinf_gguf_writer *writer, const char *key, double value);
void zinf_gguf_bool(struct zinf_gguf_writer *writer, const char *key, bool value);
void zinf_gguf_texts(struct zinf_gguf_writer *writer, const char *key, char *const *texts,
                     uint64_t n);
void zinf_gguf_f32s(struct zinf_gguf_writer *writer, const char *key, const float *values,
                    uint64_t n);
void zinf_gguf_i32s(struct zinf_gguf_writer *writer, const char *key, const int32_t *values,
                    uint64_t n);
/* shape: the last dimension is that of a row. */
int zinf_gguf_declare(struct zinf_gguf_writer *writer, const char *name, enum zinf_gguf_form form,
                      int rank, const uint64_t *shape);
int zinf_gguf_begin(struct zinf_gguf_writer *writer);
/* Of the tensors in the order of their declarations; each call has whole blocks of one tensor. */
int zinf_gguf_append(struct zinf_gguf_writer *writer, const float *values, uint64_t n);
/* Checks that every number was given, and publishes the file. */
int zinf_gguf_finish(struct zinf_gguf_writer *writer);

bool zinf_gguf_is(const uint8_t first[8]); /* by the first bytes of a file */
/* The keys of a file; cJSON_Delete. */
struct cJSON;
int zinf_gguf_read_keys(struct cJSON **out, const char *path);

/* The file, in a folder that has no weights of its own, that says which tensor of a GGUF file is
 * which of the model's: {"file": PATH, "weight_map": {OURS: {"tensor": THEIRS, "order": ORDER,
 * "head_rows": N, "add": X}}}; order, head_rows and add may be missing. */
#define ZINF_GGUF_INDEX "model.gguf.index.json"

/* ---- layers of a pipeline ---- */

/* The file, in a folder that has no weights of its own, that says what the tensors of a pipeline's
 * files (DeepSpeed's layer_NN-model_states.pt, in each of which names begin anew) are called in the
 * model: {"folder": PATH, "weight_map": {FILE: {THEIRS: OURS}}}. Tensors without a name are left
 * out. */
#define ZINF_LAYERS_INDEX "model.layers.index.json"
/* How many such files the folder has, numbered from 0 on; 0: none. -EINVAL: a number is missing.
 * -ENOTSUP: their matrices are shared by several ranks. */
int64_t zinf_layers_count(const char *folder);
/* The name of a file of those, from 0 on, into buffer (returned). */
const char *zinf_layers_file(const char *folder, int64_t number, char *buffer, size_t bytes);

/* ---- folders ---- */

enum zinf_companions {
    ZINF_COMPANIONS_ALL,
    ZINF_COMPANIONS_TOKENIZER, /* the files of the tokenizer and its chat template alone */
};
/* Copies what belongs beside the weights from one model folder to another: files of the tokenizer,
 * code (*.py), generation_config.json, licences. By name, of the folder itself; a link that leads
 * out of it (but for the hub's own cache) and what is larger than 256 MiB are left out with a
 * warning. */
int zinf_folder_copy_companions(const char *from, const char *to, enum zinf_companions which);

/* Each of those files that is there, by name. A failure of see ends it. */
int zinf_folder_companions(const char *folder, enum zinf_companions which,
                           int (*see)(void *arg, const char *path, const char *name), void *arg);
/* Whether a new model or adapter may be written there: -EEXIST where the folder holds a model, an
 * adapter or a training, of which something would be replaced. It need not be there. */
int zinf_folder_check_new(const char *option, const char *folder);

/* ---- token files ---- */

enum zinf_token_format {
    ZINF_TOKENS_LLMC,    /* llm.c .bin: 256 int32 header, magic 20240520, version 1; uint16
                          * tokens (version 7 / magic 20240801: uint32) */
    ZINF_TOKENS_RAW_U16, /* .bin without that magic */
    ZINF_TOKENS_NPY,     /* one-dimensional integer array, little endian, C order */
};
struct zinf_token_file;
int zinf_token_file_open(struct zinf_token_file **out, const char *path);
void zinf_token_file_close(struct zinf_token_file *file);
enum zinf_token_format zinf_token_file_format(const struct zinf_token_file *file);
uint64_t zinf_token_file_count(const struct zinf_token_file *file);
int zinf_token_file_read(const struct zinf_token_file *file, uint64_t first, uint64_t n,
                         int32_t *out);

#ifdef __cplusplus
}
#endif
#endif
