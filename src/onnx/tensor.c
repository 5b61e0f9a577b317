/* tensor.c: tensors of a file: their shapes, their bytes, and elements as numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "onnx_private.h"

enum ull__type type_of_file(int32_t number)
{
    static const int numbers[] = {
#define X(name, text, bits, onnx) onnx,
        ULL_TYPE_MAP(X)
#undef X
    };
    for (int i = 0; number > 0 && i < ULL_TYPES; ++i) {
        if (numbers[i] == number) {
            return (enum ull__type)i;
        }
    }
    return ULL_TYPES;
}

enum ull__type type_in_graph(const struct reader *r, enum ull__type type)
{
    return !r->options->as_is && ull__type_is_float(type) ? ULL_TYPE_F32 : type;
}

static ull_status shape_of(const Onnx__TensorProto *tensor, enum ull__type *type, int *rank,
                           int64_t *dims, int64_t *count, struct ull_error *err)
{
    const char *name = shown(tensor->name);
    *type = type_of_file(tensor->has_data_type ? tensor->data_type : 0);
    if (*type == ULL_TYPES) {
        return ull__fail(err, ULL_E_FORMAT, "tensor '%s' is of type %d, which is not supported",
                         name, (int)tensor->data_type);
    }
    if (tensor->n_dims > ULL_RANK) {
        return ull__fail(err, ULL_E_FORMAT, "tensor '%s' has %zu dimensions: expected at most %d",
                         name, tensor->n_dims, ULL_RANK);
    }
    *rank = (int)tensor->n_dims;
    *count = 1;
    for (int i = 0; i < *rank; ++i) {
        dims[i] = tensor->dims[i];
        if (dims[i] < 0 || __builtin_mul_overflow(*count, dims[i], count) ||
            *count > ULL_DIM_MOST / 8) {
            return ull__fail(err, ULL_E_FORMAT,
                             "dimension %d of tensor '%s' is %lld, which cannot be", i, name,
                             (long long)dims[i]);
        }
    }
    return ULL_OK;
}

bool tensor_shape(struct reader *r, const Onnx__TensorProto *tensor, enum ull__type *type,
                  int *rank, int64_t *dims, int64_t *count)
{
    struct ull_error err;
    ull_status status = shape_of(tensor, type, rank, dims, count, &err);
    if (status != ULL_OK) {
        reader_fail(r, status, "%s", err.message);
    }
    return status == ULL_OK;
}

static bool copy_list(char *out, const void *list, size_t there, size_t wanted, size_t width)
{
    if (there == wanted && wanted > 0) {
        memcpy(out, list, wanted * width);
    }
    return there == wanted;
}

/* Numbers of another width, from the list that the type's numbers are in. False: there are not as many. */
static bool from_list(const Onnx__TensorProto *t, enum ull__type type, int64_t count, char *out)
{
    size_t wanted = (size_t)count;
    switch (type) {
    case ULL_TYPE_F32:
        return copy_list(out, t->float_data, t->n_float_data, wanted, 4);
    case ULL_TYPE_F64:
        return copy_list(out, t->double_data, t->n_double_data, wanted, 8);
    case ULL_TYPE_I64:
        return copy_list(out, t->int64_data, t->n_int64_data, wanted, 8);
    case ULL_TYPE_U32:
    case ULL_TYPE_U64:
        for (size_t i = 0; t->n_uint64_data == wanted && i < wanted; ++i) {
            if (type == ULL_TYPE_U64) {
                ((uint64_t *)(void *)out)[i] = t->uint64_data[i];
            } else {
                ((uint32_t *)(void *)out)[i] = (uint32_t)t->uint64_data[i];
            }
        }
        return t->n_uint64_data == wanted;
    default:
        break;
    }
    int bytes = ull__type_bits(type) / 8;
    for (size_t i = 0; t->n_int32_data == wanted && i < wanted; ++i) {
        memcpy(out + i * (size_t)bytes, &t->int32_data[i], (size_t)bytes); /* little endian */
    }
    return t->n_int32_data == wanted;
}

static ull_status bytes_of(const Onnx__TensorProto *tensor, const char *folder, enum ull__type type,
                           int64_t count, void **data, struct ull_error *err)
{
    size_t bytes = (size_t)count * (size_t)(ull__type_bits(type) / 8);
    const char *name = shown(tensor->name);
    if (tensor->segment != NULL) {
        return ull__fail(err, ULL_E_FORMAT, "tensor '%s' is in segments, which are not supported",
                         name);
    }
    if (tensor->has_data_location &&
        tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        return ull__onnx_external(folder, tensor, bytes, data, err);
    }
    size_t there = tensor->has_raw_data
                       ? tensor->raw_data.len
                       : (tensor->n_float_data + tensor->n_int32_data + tensor->n_int64_data +
                          tensor->n_double_data + tensor->n_uint64_data) *
                             (size_t)(ull__type_bits(type) / 8);
    if (there != bytes) {
        return ull__fail(err, ULL_E_FORMAT, "tensor '%s' has %zu bytes: expected %zu for its shape",
                         name, there, bytes);
    }
    void *made = malloc(bytes > 0 ? bytes : 1);
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for %zu bytes of tensor '%s'", bytes, name);
    }
    if (tensor->has_raw_data) {
        if (bytes > 0) {
            memcpy(made, tensor->raw_data.data, bytes);
        }
    } else if (!from_list(tensor, type, count, made)) {
        free(made);
        return ull__fail(err, ULL_E_FORMAT,
                         "tensor '%s' of %s has its numbers in a list of another type", name,
                         ull__type_text(type));
    }
    *data = made;
    return ULL_OK;
}

void *tensor_data(struct reader *r, const Onnx__TensorProto *tensor)
{
    enum ull__type type;
    int rank;
    int64_t dims[ULL_RANK], count;
    void *data = NULL;
    struct ull_error err;
    if (!tensor_shape(r, tensor, &type, &rank, dims, &count)) {
        return NULL;
    }
    ull_status status = bytes_of(tensor, r->options->folder, type, count, &data, &err);
    if (status != ULL_OK) {
        reader_fail(r, status, "%s", err.message);
        return NULL;
    }
    return data;
}

static double from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 != 0 ? -value : value;
}

static double from_bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

/* To nearest, halves to even. */
static uint16_t to_bfloat(double number)
{
    float value = (float)number;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value)) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_half(double number)
{
    uint16_t sign = signbit(number) ? 0x8000 : 0;
    double amount = fabs(number);
    if (isnan(number)) {
        return 0x7e00;
    }
    if (amount >= 65520) {
        return sign | 0x7c00;
    }
    int exponent;
    frexp(amount, &exponent);
    exponent =
        amount == 0 || exponent < -13 ? -13 : exponent; /* the smallest ones have one exponent */
    double steps = nearbyint(ldexp(amount, 11 - exponent)); /* of the last place */
    /* A fraction that is rounded up to the next power carries into the exponent. */
    return sign | (uint16_t)((exponent + 13) * 1024 + (int)steps);
}

#define FOR_WHOLE_TYPES(X)                                                                         \
    X(I64, int64_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I16, int16_t)                                                                                \
    X(I8, int8_t)                                                                                  \
    X(U8, uint8_t)                                                                                 \
    X(U16, uint16_t)                                                                               \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(BOOL, uint8_t)

/* What is outside of what a size can be is put to the nearest that is. */
static int64_t in_range(int64_t number)
{
    return number > ULL_DIM_MOST ? ULL_DIM_MOST : number < -ULL_DIM_MOST ? -ULL_DIM_MOST : number;
}

void cells_from_bytes(enum ull__type type, const void *bytes, int64_t count, union cell *cells)
{
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
        case ULL_TYPE_F32:
            cells[i].real = (double)((const float *)bytes)[i];
            break;
        case ULL_TYPE_F64:
            cells[i].real = ((const double *)bytes)[i];
            break;
        case ULL_TYPE_F16:
            cells[i].real = from_half(((const uint16_t *)bytes)[i]);
            break;
        case ULL_TYPE_BF16:
            cells[i].real = from_bfloat(((const uint16_t *)bytes)[i]);
            break;
#define X(name, ctype)                                                                             \
    case ULL_TYPE_##name:                                                                          \
        cells[i].whole = in_range((int64_t)((const ctype *)bytes)[i]);                             \
        break;
            FOR_WHOLE_TYPES(X)
#undef X
        default:
            cells[i].whole = 0;
        }
    }
}

void cells_to_bytes(enum ull__type type, const union cell *cells, int64_t count, void *bytes)
{
    for (int64_t i = 0; i < count; ++i) {
        switch (type) {
        case ULL_TYPE_F32:
            ((float *)bytes)[i] = (float)cells[i].real;
            break;
        case ULL_TYPE_F64:
            ((double *)bytes)[i] = cells[i].real;
            break;
        case ULL_TYPE_F16:
            ((uint16_t *)bytes)[i] = to_half(cells[i].real);
            break;
        case ULL_TYPE_BF16:
            ((uint16_t *)bytes)[i] = to_bfloat(cells[i].real);
            break;
#define X(name, ctype)                                                                             \
    case ULL_TYPE_##name:                                                                          \
        ((ctype *)bytes)[i] = (ctype)cells[i].whole;                                               \
        break;
            FOR_WHOLE_TYPES(X)
#undef X
        default:
            break;
        }
    }
}

ull_status ull__onnx_tensor_parse(const void *data, size_t size, struct ull__onnx_tensor *tensor,
                                  struct ull_error *err)
{
    struct ull__onnx_tensor made = {.rank = 0};
    int64_t count;
    ull_status status = ull__onnx_scan(&onnx__tensor_proto__descriptor, data, size, err);
    Onnx__TensorProto *proto = status == ULL_OK ? onnx__tensor_proto__unpack(NULL, size, data) : NULL;
    if (status == ULL_OK && proto == NULL) {
        status = ull__fail(err, ULL_E_FORMAT, "not a tensor in the format of ONNX");
    }
    if (status == ULL_OK) {
        status = shape_of(proto, &made.type, &made.rank, made.dims, &count, err);
    }
    if (status == ULL_OK) {
        status = bytes_of(proto, NULL, made.type, count, &made.data, err);
        made.bytes = (size_t)count * (size_t)(ull__type_bits(made.type) / 8);
    }
    if (status == ULL_OK) {
        strncpy(made.name, proto->name != NULL ? proto->name : "", sizeof(made.name) - 1);
        *tensor = made;
    }
    if (proto != NULL) {
        onnx__tensor_proto__free_unpacked(proto, NULL);
    }
    return status;
}

void ull__onnx_tensor_finish(struct ull__onnx_tensor *tensor)
{
    free(tensor->data);
    tensor->data = NULL;
}
