/* settle.h: waits until a device of the driver has done all its work. */
#ifndef ULLAGE_TORCH_SETTLE_H
#define ULLAGE_TORCH_SETTLE_H

#include "ullage/status.h"

ull_status ullage_torch_settle(int device);

#endif
