/*
 * exports.h: makes what the public headers declare visible in libullage.so. All else is compiled hidden.
 *
 * Included in front of every file of the modules that the library is made of, by the build: a function
 * keeps the visibility of its first declaration. So the public headers need no words of their own for it.
 */
#ifndef ULLAGE_EXPORTS_H
#define ULLAGE_EXPORTS_H

#pragma GCC visibility push(default)
#include "ullage/config.h"
#include "ullage/device.h"
#include "ullage/policy.h"
#include "ullage/pool.h"
#include "ullage/record.h"
#include "ullage/stats.h"
#include "ullage/status.h"
#pragma GCC visibility pop

#endif
