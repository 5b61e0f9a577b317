/* torch.c: the history as one of PyTorch's memory snapshots; see torch_write.h. */
#include "torch_write.h"

#include "report.h"

ull_status report_torch(const struct report_input *input, FILE *out, struct ull_error *err)
{
    return ull__history_to_torch(input->history, out, err);
}
