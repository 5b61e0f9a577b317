/* graphs.h: the pools of captured graphs, as PyTorch names them, and the streams that are in one now. */
#ifndef ULLAGE_TORCH_GRAPHS_H
#define ULLAGE_TORCH_GRAPHS_H

#include "pools.h"

namespace ullage
{

/* Before a request: joins the stream to the graph whose filter accepts it, if any is being captured. */
void join_graphs(Pool &pool, void *stream);

/*
 * After a request where PyTorch's callbacks are not registered: was it made in a capture? Such memory would
 * belong to a graph that nobody could ever release. It is given back then, and the request is an error.
 */
void refuse_capture(Pool &pool, void *address, void *stream);

} // namespace ullage

#endif
