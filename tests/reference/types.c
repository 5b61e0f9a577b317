/* types.c: what a type can hold, and how. See reference.h. */
#include "call.h"

/* To a significand of `bits` and an exponent of at least `least`; more than `most` is infinite. */
static double to_float(double value, int bits, int least, double most)
{
    int exponent;
    if (!isfinite(value) || value == 0) {
        return value;
    }
    frexp(value, &exponent);
    int unit = exponent - bits < least ? least : exponent - bits;
    double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
    return fabs(rounded) > most ? copysign(INFINITY, value) : rounded;
}

static double to_whole(double value, int bits, bool is_signed)
{
    if (!isfinite(value)) {
        return 0;
    }
    double whole = trunc(value);
    if (bits >= 64) {
        return whole;
    }
    double span = ldexp(1, bits), low = is_signed ? -span / 2 : 0;
    return whole - span * floor((whole - low) / span);
}

double ref_rounded(double value, enum ull__type type)
{
    switch (type) {
    case ULL_TYPE_F32:
        return (double)(float)value;
    case ULL_TYPE_F16:
        return to_float(value, 11, -24, 65504);
    case ULL_TYPE_BF16:
        return to_float(value, 8, -133, 0x1.fep127);
    case ULL_TYPE_BOOL:
    case ULL_TYPE_BIT:
        return value != 0;
    case ULL_TYPE_I64:
    case ULL_TYPE_I32:
    case ULL_TYPE_I16:
    case ULL_TYPE_I8:
        return to_whole(value, ull__type_bits(type), true);
    case ULL_TYPE_U8:
    case ULL_TYPE_U16:
    case ULL_TYPE_U32:
    case ULL_TYPE_U64:
        return to_whole(value, ull__type_bits(type), false);
    default:
        return value;
    }
}

/* The value of 16 bits of which one is the sign and `exponent_bits` the exponent. */
static double from_half(uint16_t bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = bits & ((1 << fraction_bits) - 1);
    double value = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                   : exponent == (1 << exponent_bits) - 1
                       ? (fraction == 0 ? INFINITY : NAN)
                       : ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
    return bits >> 15 ? -value : value;
}

static uint16_t to_half(double value, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1, exponent;
    unsigned sign = signbit(value) ? 0x8000 : 0, most = (1u << exponent_bits) - 1;
    double amount = fabs(value);
    if (!(amount < INFINITY)) {
        return (uint16_t)(sign | most << fraction_bits |
                          (isnan(value) ? 1u << (fraction_bits - 1) : 0));
    }
    frexp(amount, &exponent);
    int field = exponent - 1 + bias;
    if (amount == 0 || field < 1) { /* a multiple of the least one that there is */
        return (uint16_t)(sign | (unsigned)ldexp(amount, fraction_bits + bias - 1));
    }
    unsigned fraction =
        (unsigned)ldexp(amount, fraction_bits - (exponent - 1)) & ((1u << fraction_bits) - 1);
    return (uint16_t)(sign | (unsigned)field << fraction_bits | fraction);
}

/* Types that C has: name in ULL_TYPE_MAP, type. */
#define PLAIN(X)                                                                                   \
    X(F32, float)                                                                                  \
    X(F64, double)                                                                                 \
    X(I64, int64_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I16, int16_t)                                                                                \
    X(I8, int8_t)                                                                                  \
    X(U8, uint8_t)                                                                                 \
    X(U16, uint16_t)                                                                               \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(BOOL, uint8_t)

static double read_element(enum ull__type type, const char *data, int64_t i)
{
    uint16_t half;
    switch (type) {
#define X(name, kind)                                                                              \
    case ULL_TYPE_##name: {                                                                        \
        kind element;                                                                              \
        memcpy(&element, data + (size_t)i * sizeof(element), sizeof(element));                     \
        return (double)element;                                                                    \
    }
        PLAIN(X)
#undef X
    case ULL_TYPE_F16:
    case ULL_TYPE_BF16:
        memcpy(&half, data + (size_t)i * sizeof(half), sizeof(half));
        return from_half(half, type == ULL_TYPE_F16 ? 5 : 8);
    default:
        ref__die("no data of type %s", ull__type_text(type));
    }
}

static void write_element(enum ull__type type, char *data, int64_t i, double value)
{
    uint16_t half;
    switch (type) {
#define X(name, kind)                                                                              \
    case ULL_TYPE_##name: {                                                                        \
        kind element = (kind)value;                                                                \
        memcpy(data + (size_t)i * sizeof(element), &element, sizeof(element));                     \
        return;                                                                                    \
    }
        PLAIN(X)
#undef X
    case ULL_TYPE_F16:
    case ULL_TYPE_BF16:
        half = to_half(value, type == ULL_TYPE_F16 ? 5 : 8);
        memcpy(data + (size_t)i * sizeof(half), &half, sizeof(half));
        return;
    default:
        ref__die("no data of type %s", ull__type_text(type));
    }
}

void ref_decode(enum ull__type type, const void *from, double *to, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        to[i] = read_element(type, from, i);
    }
}

void ref_encode(enum ull__type type, const double *from, void *to, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        write_element(type, to, i, ref_rounded(from[i], type));
    }
}
