// Launches of the kernels that variants share.
#pragma once

#include <cuda_runtime.h>

#include "dispatch.h"

namespace fathom::lab::device_graph_launch {

// Runs each of them once on the stream: they cannot be loaded while it is captured.
void load_kernels(const Dispatch& p, StreamRef stream);

void launch_begin(const Dispatch& p, StreamRef stream);             // the state, and no token
void launch_graph(const Dispatch& p, int graph, StreamRef stream);  // the kernels of that graph

// The next token. The choice goes to p.on_host, ...
void launch_choose_for_host(const Dispatch& p, StreamRef stream);
// ... or to conditional nodes: `more` becomes 0 after the last token, `which` is the graph.
struct Nodes {
  cudaGraphConditionalHandle more, which;
};
void launch_choose_for_nodes(const Dispatch& p, Nodes nodes, StreamRef stream);

}  // namespace fathom::lab::device_graph_launch
