// Conditional nodes side by side: each is captured on a stream of its own, behind the same event.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuda/conditional_node.h"
#include "cuda/event.h"
#include "layer.cuh"

namespace fathom::lab::router_graph {

// Made before the capture, and needed no longer than it.
class Branches {
 public:
  explicit Branches(int count) {
    for (int b = 0; b < count; ++b) {
      cudaStream_t stream = nullptr;
      FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      streams_.emplace_back(stream);
    }
  }

  // Calls `add` with the stream of each branch, which waits for what `stream` was given before. What it is
  // given afterwards waits for all branches.
  void capture(StreamRef stream, const std::function<void(int branch, StreamRef stream)>& add) const {
    begin_.record(stream);
    for (size_t b = 0; b < streams_.size(); ++b) {
      const StreamRef branch = streams_[b].get();
      begin_.wait_on(branch);
      add(static_cast<int>(b), branch);
      end_.record(branch);
      end_.wait_on(stream);
    }
  }

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const { (void)cudaStreamDestroy(stream); }
  };
  std::vector<std::unique_ptr<CUstream_st, Destroy>> streams_;
  Event begin_{Event::Timing::off}, end_{Event::Timing::off};
};

}  // namespace fathom::lab::router_graph
