// A CUDA graph captured from a stream. Only builds with CUDA have it. Cheap to include: no header of CUDA.
#pragma once

#include <functional>
#include <memory>

#include "cuda/stream.h"

struct CUgraphExec_st;

namespace fathom {

class CudaGraph {
 public:
  // What launches it beside the host. A graph that kernels launch consists of kernels, copies and fills on
  // one GPU (CUDA Programming Guide, "Device Graph Launch").
  enum class LaunchedBy { host, kernels };

  // Captures the work that `enqueue` puts on `stream`, without running it. `enqueue` must not wait for the
  // GPU, nor launch a kernel for the first time in this process: CUDA cannot load kernels during a capture.
  // Throws what `enqueue` throws, or SystemError; the stream can then be used as before. An error that comes
  // from the capture names the call, the reason and the remedy (cuda/capture_error.h).
  CudaGraph(StreamRef stream, const std::function<void()>& enqueue, LaunchedBy by = LaunchedBy::host);

  // Runs it with the addresses and values that were captured.
  void launch(StreamRef stream) const;
  // For cudaGraphLaunch() in a kernel of another graph, or of this one, which work enqueued on `stream` after
  // the constructor runs.
  CUgraphExec_st* handle() const { return exec_.get(); }

 private:
  struct End {
    void operator()(CUgraphExec_st* graph) const;
  };
  std::unique_ptr<CUgraphExec_st, End> exec_;
};

}  // namespace fathom
