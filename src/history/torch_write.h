/*
 * torch_write.h: a history as one of PyTorch's memory snapshots (a pickle of protocol 4), for PyTorch's own viewers:
 * https://pytorch.org/memory_viz and torch.cuda._memory_viz.
 *
 * How blocks come to lie in segments is said in torch_layout.h. Tags are user_metadata and, if there are not too
 * many for a legend, `category`; marks are annotations. Addresses of 2^63 and more are negative, as PyTorch's own
 * writer has them. What PyTorch's format has no place for is left out: host memory, the card's use, budgets,
 * latencies, processes.
 */
#ifndef ULLAGE_TORCH_WRITE_H
#define ULLAGE_TORCH_WRITE_H

#include <stdio.h>

#include "history.h"

/* ULL_E_SYSTEM without memory; whether all was written is the stream's to say. */
ull_status ull__history_to_torch(const struct ull__history *history, FILE *out,
                                 struct ull_error *err);

#endif
