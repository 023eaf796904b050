/*
 * pickle_torch: the names that a file of tensors may use, and what torch means by them. The forms
 * of arguments are those of torch/_utils.py and torch/serialization.py of PyTorch 1.6 to 2.
 */
#include "formats/pickle_machine.h"
#include "formats/safetensors.h"

enum name_kind {
    NAME_DICT,      /* collections.OrderedDict() */
    NAME_TENSOR,    /* (storage, first, shape, stride, requires_grad, hooks, ...) */
    NAME_TENSOR_OF, /* the same and, behind hooks, a dtype: the storage has bytes */
    NAME_PARAMETER, /* (tensor, requires_grad, hooks) */
    NAME_TYPED,     /* (one of the above, type, its arguments, state) */
    NAME_SIZE,      /* a tuple of one tuple, which it is */
    NAME_OBJECT,    /* any arguments, which do not matter */
    NAME_STORAGE,   /* a type of storages, never called */
    NAME_BYTES,     /* the type of storages that have no dtype */
    NAME_DTYPE,
};
static const struct known_name {
    const char *module, *name;
    enum name_kind kind;
    enum zinf_file_dtype dtype; /* STORAGE, DTYPE */
} names[] = {
    {"collections", "OrderedDict", NAME_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", NAME_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor_v3", NAME_TENSOR_OF, 0},
    {"torch._utils", "_rebuild_parameter", NAME_PARAMETER, 0},
    {"torch._tensor", "_rebuild_from_type_v2", NAME_TYPED, 0},
    {"torch", "Tensor", NAME_OBJECT, 0},
    {"torch.nn.parameter", "Parameter", NAME_OBJECT, 0},
    {"torch", "Size", NAME_SIZE, 0},
    {"deepspeed.utils.tensor_fragment", "fragment_address", NAME_OBJECT, 0},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", NAME_OBJECT, 0},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler", NAME_OBJECT, 0},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler", NAME_OBJECT, 0},
    {"deepspeed.checkpoint.universal_checkpoint", "SubparamShape", NAME_OBJECT, 0},
    {"torch", "DoubleStorage", NAME_STORAGE, ZINF_FILE_F64},
    {"torch", "FloatStorage", NAME_STORAGE, ZINF_FILE_F32},
    {"torch", "HalfStorage", NAME_STORAGE, ZINF_FILE_F16},
    {"torch", "BFloat16Storage", NAME_STORAGE, ZINF_FILE_BF16},
    {"torch", "LongStorage", NAME_STORAGE, ZINF_FILE_I64},
    {"torch", "IntStorage", NAME_STORAGE, ZINF_FILE_I32},
    {"torch", "ShortStorage", NAME_STORAGE, ZINF_FILE_I16},
    {"torch", "CharStorage", NAME_STORAGE, ZINF_FILE_I8},
    {"torch", "ByteStorage", NAME_STORAGE, ZINF_FILE_U8},
    {"torch", "BoolStorage", NAME_STORAGE, ZINF_FILE_BOOL},
    {"torch", "UntypedStorage", NAME_BYTES, ZINF_FILE_U8},
    {"torch.storage", "UntypedStorage", NAME_BYTES, ZINF_FILE_U8},
    {"torch", "float64", NAME_DTYPE, ZINF_FILE_F64},
    {"torch", "float32", NAME_DTYPE, ZINF_FILE_F32},
    {"torch", "float16", NAME_DTYPE, ZINF_FILE_F16},
    {"torch", "bfloat16", NAME_DTYPE, ZINF_FILE_BF16},
    {"torch", "float8_e4m3fn", NAME_DTYPE, ZINF_FILE_F8_E4M3},
    {"torch", "float8_e5m2", NAME_DTYPE, ZINF_FILE_F8_E5M2},
    {"torch", "uint64", NAME_DTYPE, ZINF_FILE_U64},
    {"torch", "uint32", NAME_DTYPE, ZINF_FILE_U32},
    {"torch", "uint16", NAME_DTYPE, ZINF_FILE_U16},
    {"torch", "uint8", NAME_DTYPE, ZINF_FILE_U8},
    {"torch", "int64", NAME_DTYPE, ZINF_FILE_I64},
    {"torch", "int32", NAME_DTYPE, ZINF_FILE_I32},
    {"torch", "int16", NAME_DTYPE, ZINF_FILE_I16},
    {"torch", "int8", NAME_DTYPE, ZINF_FILE_I8},
    {"torch", "bool", NAME_DTYPE, ZINF_FILE_BOOL},
};

/* ---- names ---- */

const char *machine_printable(const struct zinf_pickled_text *text, char *buffer, size_t bytes)
{
    size_t n = text->bytes < bytes - 1 ? text->bytes : bytes - 1;
    for (size_t i = 0; i < n; i++)
        buffer[i] = text->at[i] >= ' ' && text->at[i] < 0x7f ? text->at[i] : '?';
    buffer[n] = 0;
    return buffer;
}

static bool is(const struct zinf_pickled_text *text, const char *word)
{
    return text->bytes == strlen(word) && !memcmp(text->at, word, text->bytes);
}

int machine_find_name(const struct machine *m, const struct zinf_pickled_text *module,
                      const struct zinf_pickled_text *name)
{
    char first[100], second[100];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(module, names[i].module) && is(name, names[i].name))
            return (int)i;
    return zinf_fail(-ENOTSUP,
                     "%s: its pickle calls %s.%s, which is not a tensor, so nothing of it is read: "
                     "load it in Python if you trust it, and save its state_dict with "
                     "safetensors.torch.save_file",
                     m->what, machine_printable(module, first, sizeof first),
                     machine_printable(name, second, sizeof second));
}

/* ---- storages ---- */

static struct zinf_pickled_text text_of(const struct machine *m, const struct value *value)
{
    return (struct zinf_pickled_text){(const char *)m->data + value->text.at, value->text.bytes};
}

int machine_take_storage(struct machine *m, const struct value *id)
{
    const struct value *part[4];
    int code = 0;
    if (id->kind != VALUE_TUPLE || id->tuple.n != 5)
        return machine_fail(m, "a storage is not described by five values");
    for (uint32_t i = 0; i < 3; i++)
        part[i] = machine_part(m, id, i);
    part[3] = machine_part(m, id, 4);
    const struct known_name *type = part[1]->kind == VALUE_NAME ? &names[part[1]->index] : NULL;
    bool good = part[0]->kind == VALUE_TEXT && type &&
                (type->kind == NAME_STORAGE || type->kind == NAME_BYTES) &&
                part[2]->kind == VALUE_TEXT && part[3]->kind == VALUE_INT && part[3]->integer >= 0;
    struct zinf_pickled_text word = good ? text_of(m, part[0]) : (struct zinf_pickled_text){0};
    if (!good || !is(&word, "storage"))
        return machine_fail(m, "a storage is not described as torch does");
    struct storage *storage = machine_add(m, &m->storages, sizeof *storage, &code);
    if (!storage)
        return code;
    *storage = (struct storage){.key = text_of(m, part[2]),
                                .dtype = type->dtype,
                                .n_elems = (uint64_t)part[3]->integer,
                                .untyped = type->kind == NAME_BYTES};
    return machine_push(m, (struct value){.kind = VALUE_STORAGE, .index = m->storages.n - 1});
}

/* ---- tensors ---- */

/* A tuple of numbers that are not negative; how many, or -EINVAL. */
static int read_numbers(const struct machine *m, const struct value *tuple,
                        uint64_t out[ZINF_TENSOR_MAX_RANK])
{
    if (tuple->kind != VALUE_TUPLE)
        return machine_fail(m, "a shape is no tuple");
    if (tuple->tuple.n > ZINF_TENSOR_MAX_RANK)
        return machine_fail(m, "a tensor has too many dimensions");
    for (uint32_t i = 0; i < tuple->tuple.n; i++) {
        const struct value *number = machine_part(m, tuple, i);
        if (number->kind != VALUE_INT || number->integer < 0)
            return machine_fail(m, "a shape has something else than sizes");
        out[i] = (uint64_t)number->integer;
    }
    return (int)tuple->tuple.n;
}

/* The dtype is the storage's, or the argument behind the hooks. */
static int read_dtype(const struct machine *m, const struct storage *storage,
                      const struct value *arguments, enum name_kind kind,
                      enum zinf_file_dtype *dtype)
{
    enum { DTYPE = 6 };
    const struct value *part = NULL;
    *dtype = storage->dtype;
    if (kind == NAME_TENSOR)
        return storage->untyped ? machine_fail(m, "a tensor has no dtype") : 0;
    if (arguments->tuple.n > DTYPE)
        part = machine_part(m, arguments, DTYPE);
    if (!part || part->kind != VALUE_NAME || names[part->index].kind != NAME_DTYPE)
        return machine_fail(m, "a tensor has no dtype");
    *dtype = names[part->index].dtype;
    return storage->untyped || *dtype == storage->dtype
               ? 0
               : machine_fail(m, "a tensor and its storage have two dtypes");
}

/* What torch adds says that values are conjugate or negated as they are read. */
static int check_metadata(const struct machine *m, const struct value *arguments,
                          enum name_kind kind)
{
    uint32_t at = kind == NAME_TENSOR ? 6 : 7;
    const struct value *part = arguments->tuple.n > at ? machine_part(m, arguments, at) : NULL;
    if (!part || part->kind == VALUE_NONE || (part->kind == VALUE_DICT && !part->dict.first))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s: a tensor in it is a conjugate or negated view: save it with .clone()",
                     m->what);
}

static int make_tensor(struct machine *m, const struct value *arguments, enum name_kind kind)
{
    struct zinf_pickled_tensor tensor = {0}, *slot;
    int code = 0, strides;
    if (arguments->tuple.n < 6)
        return machine_fail(m, "a tensor has too few arguments");
    const struct value *of = machine_part(m, arguments, 0), *at = machine_part(m, arguments, 1);
    if (of->kind != VALUE_STORAGE || at->kind != VALUE_INT || at->integer < 0)
        return machine_fail(m, "a tensor is not described as torch does");
    const struct storage *storage = (const struct storage *)m->storages.items + of->index;
    tensor.key = storage->key;
    tensor.first = (uint64_t)at->integer;
    if ((code = check_metadata(m, arguments, kind)) ||
        (code = read_dtype(m, storage, arguments, kind, &tensor.dtype)) ||
        (code = tensor.rank = read_numbers(m, machine_part(m, arguments, 2), tensor.shape)) < 0)
        return code;
    if ((strides = read_numbers(m, machine_part(m, arguments, 3), tensor.stride)) < 0)
        return strides;
    if (strides != tensor.rank)
        return machine_fail(m, "a tensor has not as many strides as dimensions");
    if (__builtin_mul_overflow(storage->n_elems, zinf_file_dtype_bytes(storage->dtype),
                               &tensor.storage_bytes))
        return machine_fail(m, "a storage is larger than any file");
    slot = machine_add(m, &m->tensors, sizeof *slot, &code);
    if (!slot)
        return code;
    *slot = tensor;
    return machine_push(m, (struct value){.kind = VALUE_TENSOR, .index = m->tensors.n - 1});
}

/* The type adds nothing that the tensor itself has not. */
static int make_typed(struct machine *m, const struct value *arguments)
{
    if (arguments->tuple.n != 4)
        return machine_fail(m, "a tensor with a type is not described as torch does");
    const struct value *by = machine_part(m, arguments, 0);
    const struct value *to = machine_part(m, arguments, 2);
    if (by->kind != VALUE_NAME || to->kind != VALUE_TUPLE ||
        (names[by->index].kind != NAME_TENSOR && names[by->index].kind != NAME_TENSOR_OF))
        return machine_fail(m, "a tensor with a type is not described as torch does");
    struct value inner = *to;
    return make_tensor(m, &inner, names[by->index].kind);
}

int machine_call(struct machine *m, uint32_t name, const struct value *arguments)
{
    const struct value *first = arguments->tuple.n ? machine_part(m, arguments, 0) : NULL;
    switch (names[name].kind) {
    case NAME_DICT:
        if (first)
            return machine_fail(m, "a dictionary is made of something");
        return machine_push(m, (struct value){.kind = VALUE_DICT});
    case NAME_TENSOR:
    case NAME_TENSOR_OF:
        return make_tensor(m, arguments, names[name].kind);
    case NAME_PARAMETER:
        if (!first || first->kind != VALUE_TENSOR)
            return machine_fail(m, "a parameter is made of something else than a tensor");
        return machine_push(m, *first);
    case NAME_TYPED:
        return make_typed(m, arguments);
    case NAME_SIZE:
        if (!first || first->kind != VALUE_TUPLE)
            return machine_fail(m, "a shape is made of something else than a tuple");
        return machine_push(m, *first);
    case NAME_OBJECT:
        return machine_push(m, (struct value){.kind = VALUE_OBJECT});
    default:
        return machine_fail(m, "a type is called");
    }
}
