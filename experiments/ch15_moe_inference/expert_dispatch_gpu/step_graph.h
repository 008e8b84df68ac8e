// A rank's call as a CUDA graph: the residual streams zeroed, and 26 exchanges.
#pragma once

#include <functional>

#include "cuda/stream.h"
#include "exchange.h"

namespace fathom::lab::expert_dispatch_gpu {

// What a variant enqueues. An exchange is a dispatch and its combine; `index` is its number in the call.
struct Halves {
  std::function<void(StreamRef stream)> begin = nullptr;  // of the call, where there is something to do
  std::function<void(const Exchange&, int index, StreamRef stream)> dispatch, combine;
};
inline constexpr int kExchanges = kLayers + 2;

Call captured(const Dispatch& p, Context& context, Halves halves);

}  // namespace fathom::lab::expert_dispatch_gpu
