/*
 * vmath.h: functions of the C library that have vector versions (libmvec, x86_64), declared so that loops over them become
 * vector instructions. The C library's own header does so under -ffast-math alone, which would break NaN and infinity.
 *
 * They are within 4 units of the last place. Elsewhere the same calls are made an element at a time.
 */
#ifndef ULLAGE_CPU_OPS_VMATH_H
#define ULLAGE_CPU_OPS_VMATH_H

#include <math.h>

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
 * exp of what is not above 0: 0 below -87, where the vector version would fall back to one element at a time for results
 * that are hardly numbers any more, and for minus infinity.
 */
static inline __attribute__((always_inline)) float exp_low(float x)
{
    float e = expf(x < -87.0f ? -87.0f : x);
    return x < -87.0f ? 0.0f : e;
}

#endif
