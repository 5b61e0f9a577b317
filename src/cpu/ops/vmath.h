/*
 * vmath.h: functions of the C library that have vector versions (libmvec, x86_64), declared so that loops over them become
 * vector instructions. The C library's own header does so under -ffast-math alone, which would break NaN and infinity.
 *
 * They are within 4 units of the last place. Elsewhere the same calls are made an element at a time.
 */
#ifndef ULLAGE_CPU_OPS_VMATH_H
#define ULLAGE_CPU_OPS_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#define ULL_VECTOR _Pragma("omp declare simd notinbranch")
ULL_VECTOR extern float expf(float);
ULL_VECTOR extern float expm1f(float);
ULL_VECTOR extern float logf(float);
ULL_VECTOR extern float log1pf(float);
ULL_VECTOR extern float tanhf(float);
ULL_VECTOR extern float erff(float);
ULL_VECTOR extern float sinf(float);
ULL_VECTOR extern float cosf(float);
ULL_VECTOR extern double sin(double);
ULL_VECTOR extern double cos(double);
ULL_VECTOR extern float powf(float, float);
#undef ULL_VECTOR
#endif

/*
 * exp of what is not above 88, where it is asked for most (softmax, attention): written out, since a call of the vector
 * version costs more than the few instructions. 0 below -87. Within 2 units of the last place: 2^n times a polynomial of the
 * rest, which is at most log(2) / 2 in amount.
 */
static inline __attribute__((always_inline)) float exp_low(float x)
{
    float v = x < -87.0f ? -87.0f : x;
    float n = (v * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* to a whole number */
    float r = v - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t power = v == v ? (int32_t)n : 0; /* NaN goes through the polynomial */
    uint32_t bits = (uint32_t)(power + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return x < -87.0f ? 0.0f : p * scale;
}

#endif
