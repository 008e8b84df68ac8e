// What a stream would do, captured once and launched as one. Only builds with CUDA have it. Cheap to include:
// no header of CUDA.
#pragma once

#include <functional>
#include <memory>

#include "core/stream.h"

struct CUgraphExec_st;

namespace fathom {

class CudaGraph {
 public:
  // Of what `enqueue` gives `stream`, which does nothing of it now. It must not wait for the GPU, nor launch
  // a kernel for the first time in this process: loading it is not allowed meanwhile. Throws what `enqueue`
  // throws, or SystemError; the stream can then be used as before.
  CudaGraph(StreamRef stream, const std::function<void()>& enqueue);

  // With the addresses and values that were captured.
  void launch(StreamRef stream) const;

 private:
  struct End {
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st, End> exec_;
};

}  // namespace fathom
