/*
 * formats: files that other programs read and write: safetensors (single and sharded), Hugging
 * Face model folders, token files. The folder knows names, number types, shapes and bytes, but
 * nothing of models.
 *
 * Every header is untrusted. Lengths, offsets, overlaps, gaps, element sizes, duplicate names and
 * counts are checked before they are used. Memory is bounded by the size of headers, not of data.
 * Writers write to a temporary name, fsync and rename, so a file appears whole or not at all.
 *
 * Threads: an object belongs to one thread at a time, except that several threads may read tensors
 * of one reader (pread). Errors: -errno, with a sentence in zinf_error().
 */
#ifndef ZINF_FORMATS_H
#define ZINF_FORMATS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ZINF_TENSOR_MAX_RANK 8

/* Number types of files. Only F32, BF16 and F16 have a zinf_dtype. */
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
/* Converts F32, BF16 and F16; -ENOTSUP for others. */
int zinf_file_dtype_to_dtype(enum zinf_file_dtype dtype, enum zinf_dtype *out);
enum zinf_file_dtype zinf_file_dtype_from_dtype(enum zinf_dtype dtype);
/* Writes a shape such as "[2, 3]" to buffer and returns it. */
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
    uint64_t file_offset; /* of the first byte, from the file's beginning */
    /* Where the elements are; NULL: they follow each other, as in all files except some of
     * PyTorch's. Owned by the reader. */
    const struct zinf_tensor_view *view;
};

/* ---- reading ---- */

struct zinf_tensors; /* the tensors of a file, or of all files of a folder */
/* Opens a .safetensors file, a file of torch.save (PyTorch 1.6 or later), a GGUF file (tensors are
 * read as F32 and have llama.cpp's names), or a folder. Of a folder the first of these is read:
 * model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json,
 * model.gguf.index.json, model.layers.index.json, a DeepSpeed checkpoint. Pickles are never
 * executed; anything but a dictionary of tensors is refused by name. Tensors of a pickle may share
 * bytes. */
int zinf_tensors_open(struct zinf_tensors **out, const char *path);
void zinf_tensors_close(struct zinf_tensors *tensors);
uint64_t zinf_tensors_count(const struct zinf_tensors *tensors);
const struct zinf_tensor_info *zinf_tensors_at(const struct zinf_tensors *tensors, uint64_t index);
const struct zinf_tensor_info *zinf_tensors_find(const struct zinf_tensors *tensors,
                                                 const char *name); /* NULL: none */
/* The name of the type in which a tensor is stored (of GGUF its block type), and its bytes in the
 * file. */
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
/* The same, converted to fp32 from F32, BF16, F16 or F64. */
int zinf_tensors_read_f32(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, float *out);

/* A hash of all names, types and shapes. */
uint64_t zinf_tensors_layout(const struct zinf_tensors *tensors);
/* From now on the bytes that are read are also summed (zinf_tensors_sum). Only one thread may read
 * meanwhile. */
int zinf_tensors_sum_begin(struct zinf_tensors *tensors);
/* A checksum of all tensors of a file that does not depend on their order and places. Reads those
 * that were not read, or not in order. */
int zinf_tensors_sum(struct zinf_tensors *tensors, uint32_t file, uint64_t *out);

/* ---- DeepSpeed checkpoints, of any stage ---- */

enum zinf_training_part {
    ZINF_TRAINING_MASTER, /* fp32 masters; of parameters without one, the parameters */
    ZINF_TRAINING_MOMENT1,
    ZINF_TRAINING_MOMENT2,
    ZINF_TRAINING_PARTS,
};
struct zinf_training_state {
    uint64_t step, n_skipped; /* steps taken, and how many of them had no update */
    uint64_t n_samples;       /* sequences seen in those steps */
    uint32_t world;
    bool optimized; /* there are moments */
};
/* Opens one array of a checkpoint. folder: DeepSpeed's tag folder, or its parent with a file
 * "latest". -ENODATA without a message: it is no DeepSpeed checkpoint. */
int zinf_tensors_open_training(struct zinf_tensors **out, const char *folder,
                               enum zinf_training_part part);
int zinf_training_state_read(struct zinf_training_state *out, const char *folder);

/* ---- writing: declare all tensors first, then stream the data in the same order ---- */

struct zinf_tensors_writer;
#define ZINF_TENSORS_WRITER_BYTES (4u << 20) /* memory of a writer beside its table of tensors */
struct zinf_tensors_writer_options {
    const char *path; /* a folder (sharded as model-0000i-of-0000n) or a .safetensors file */
    bool single_file; /* path is the file */
    uint64_t max_shard_bytes; /* folders; 0: 5e9 */
};
int zinf_tensors_writer_create(struct zinf_tensors_writer **out,
                               const struct zinf_tensors_writer_options *options);
int zinf_tensors_writer_declare(struct zinf_tensors_writer *writer, const char *name,
                                enum zinf_file_dtype dtype, int rank, const uint64_t *shape);
/* Call it after the last declaration. Writes the headers. */
int zinf_tensors_writer_begin(struct zinf_tensors_writer *writer);
/* Appends bytes of the tensors in the order of declaration, in portions of any size. Memory is
 * bounded, and the data do not stay in the page cache. */
int zinf_tensors_writer_append(struct zinf_tensors_writer *writer, const void *data,
                               uint64_t bytes);
/* Checks that all bytes were given, fsyncs, renames, and writes the index file. */
int zinf_tensors_writer_finish(struct zinf_tensors_writer *writer);
/* After finish: describes file i that has tensors, as it was written; false: there are no more.
 * name is owned by the writer. */
struct zinf_written_file {
    const char *name; /* without the folder */
    uint64_t bytes, xxh3;
};
bool zinf_tensors_writer_file(const struct zinf_tensors_writer *writer, uint32_t i,
                              struct zinf_written_file *out);
/* Frees the writer; before finish it also removes what was written. NULL is allowed. */
void zinf_tensors_writer_destroy(struct zinf_tensors_writer *writer);

/*
 * ---- GGUF: files of llama.cpp ----
 *
 * A file has keys with values, then tensors (version 3, little endian). A writer takes all keys
 * and declarations first, then the fp32 numbers of the tensors in the order of declaration. It
 * stores each in its declared form: blocks with a scale each, or a number type. It needs a few MiB
 * beside keys and declarations. If memory for a key was missing, zinf_gguf_begin returns the
 * error. One thread.
 */

/* How numbers are stored. The values are those of the format. */
enum zinf_gguf_form {
    ZINF_GGUF_F32 = 0,
    ZINF_GGUF_F16 = 1,
    ZINF_GGUF_Q4_0 = 2,
    ZINF_GGUF_Q8_0 = 8,
    ZINF_GGUF_Q4_K = 12, /* blocks of 256 numbers, as Q6_K */
    ZINF_GGUF_Q6_K = 14,
    ZINF_GGUF_BF16 = 30,
};
#define ZINF_GGUF_BLOCK 32 /* numbers of a block of Q4_0 and Q8_0; rows must be multiples of it */
/* Parses a name such as "q8_0". -EINVAL: the message lists the names. */
int zinf_gguf_form_parse(const char *name, enum zinf_gguf_form *out);
uint64_t zinf_gguf_block_elems(enum zinf_gguf_form form);
uint64_t zinf_gguf_bytes(enum zinf_gguf_form form, uint64_t n); /* n: a multiple of the block */
const char *zinf_gguf_form_name(enum zinf_gguf_form form);      /* ggml's name, such as "Q8_0" */
bool zinf_gguf_form_known(uint32_t form);
/* Convert n numbers, a multiple of the block. stored may have any alignment. */
void zinf_gguf_unpack(enum zinf_gguf_form form, const void *stored, uint64_t n, float *out);
void zinf_gguf_pack(enum zinf_gguf_form form, const float *values, uint64_t n, void *out);

struct zinf_gguf_writer;
int zinf_gguf_writer_create(struct zinf_gguf_writer **out, const char *path);
/* Frees the writer, and removes the file unless it was finished. NULL is allowed. */
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
/* Declares a tensor; the last dimension of shape is that of a row. */
int zinf_gguf_declare(struct zinf_gguf_writer *writer, const char *name, enum zinf_gguf_form form,
                      int rank, const uint64_t *shape);
int zinf_gguf_begin(struct zinf_gguf_writer *writer);
/* Appends numbers of the tensors in the order of declaration; each call has whole blocks of one
 * tensor. */
int zinf_gguf_append(struct zinf_gguf_writer *writer, const float *values, uint64_t n);
/* Checks that all numbers were given, and renames the file to its path. */
int zinf_gguf_finish(struct zinf_gguf_writer *writer);

bool zinf_gguf_is(const uint8_t first[8]); /* by a file's first bytes */
/* Reads the keys of a file; free with cJSON_Delete. */
struct cJSON;
int zinf_gguf_read_keys(struct cJSON **out, const char *path);

/* Name of a file that a model folder without weights may have. It maps the model's tensors to those
 * of a GGUF file: {"file": PATH, "weight_map": {OURS: {"tensor": THEIRS, "order": ORDER,
 * "head_rows": N, "add": X}}}; order, head_rows and add are optional. */
#define ZINF_GGUF_INDEX "model.gguf.index.json"

/* ---- layers of a pipeline ---- */

/* Name of a file that a model folder without weights may have. It maps tensors of a pipeline's
 * files (DeepSpeed's layer_NN-model_states.pt, each with names of its own) to the model's:
 * {"folder": PATH, "weight_map": {FILE: {THEIRS: OURS}}}. Other tensors are left out. */
#define ZINF_LAYERS_INDEX "model.layers.index.json"
/* Number of such files in a folder, which are numbered from 0. -EINVAL: a number is missing;
 * -ENOTSUP: several ranks share their matrices. */
int64_t zinf_layers_count(const char *folder);
/* Writes the name of one of those files to buffer and returns it. */
const char *zinf_layers_file(const char *folder, int64_t number, char *buffer, size_t bytes);

/* ---- folders ---- */

enum zinf_companions {
    ZINF_COMPANIONS_ALL,
    ZINF_COMPANIONS_TOKENIZER, /* only the tokenizer's files and its chat template */
};
/* Copies the files that belong beside the weights from one model folder to another, by name:
 * tokenizer, code (*.py), generation_config.json, licences. A link out of the folder (except into
 * the hub's cache) and a file above 256 MiB are left out with a warning. */
int zinf_folder_copy_companions(const char *from, const char *to, enum zinf_companions which);

/* Calls see with the name of each of those files that exists. A result other than 0 ends it. */
int zinf_folder_companions(const char *folder, enum zinf_companions which,
                           int (*see)(void *arg, const char *path, const char *name), void *arg);
/* Whether a new model or adapter may be written to a folder, which need not exist. -EEXIST: it
 * holds a model, an adapter or a training, part of which would be replaced. */
int zinf_folder_check_new(const char *option, const char *folder);

/* ---- token files ---- */

enum zinf_token_format {
    /* llm.c's .bin: 256 int32 of header with magic 20240520 and version 1, then uint16 tokens */
    ZINF_TOKENS_LLMC,
    ZINF_TOKENS_RAW_U16, /* .bin without that magic: uint16 tokens */
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
