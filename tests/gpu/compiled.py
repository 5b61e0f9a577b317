"""torch.compile with Triton, and a CUDA graph captured and replayed, under a budget."""
import torch

x = torch.randn(1024, 1024, device="cuda")


@torch.compile
def step(a):
    return (torch.nn.functional.gelu(a) @ a).relu().sum()


assert torch.isfinite(step(x))
static = torch.ones(1 << 20, device="cuda")
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        warm = (static * 2).sum()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = (static * 3).sum()
static.fill_(2)
graph.replay()
assert result.item() == 6 * (1 << 20), result.item()
print("compile and graph ok")
