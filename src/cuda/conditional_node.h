// Conditional nodes of CUDA graphs: a kernel of the graph decides which part of it runs, and how often (CUDA
// Programming Guide, "Conditional Graph Nodes"; driver 550, IF with else and SWITCH 570). Only builds with
// CUDA have them.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "cuda/stream.h"

namespace fathom {

// For a kernel of the graph that `stream` is being captured into, which sets it by cudaGraphSetConditional().
// At each launch of the graph it begins as `initial`.
cudaGraphConditionalHandle make_conditional_handle(StreamRef stream, unsigned initial);

// Adds a node after the work that was captured on `stream` so far; work that is captured later waits for it.
//   cudaGraphCondTypeIf      bodies[0] runs if the value is not 0, bodies[1], where there is one, if it is 0
//   cudaGraphCondTypeWhile   bodies[0] runs as long as the value is not 0
//   cudaGraphCondTypeSwitch  bodies[value] runs, or none where value is too large
// A body enqueues on the stream that it is given, and only kernels, copies, fills and conditional nodes of
// its own. Throws what a body throws, or SystemError; the capture of `stream` is then to be ended by the
// caller.
using GraphBody = std::function<void(StreamRef)>;
void add_conditional_node(StreamRef stream, cudaGraphConditionalHandle handle,
                          cudaGraphConditionalNodeType type, const std::vector<GraphBody>& bodies);

}  // namespace fathom
