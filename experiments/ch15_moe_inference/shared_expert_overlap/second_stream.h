// A stream beside the harness's. Its work starts after fork() and is over for whoever comes after join(), so
// the events with which the harness times a call enclose it. (ch11's side streams have priorities too.)
#pragma once

#include <memory>

#include "cuda/check.h"
#include "cuda/event.h"
#include "cuda/stream.h"

namespace fathom::lab::shared_expert_overlap {

class SecondStream {
 public:
  SecondStream() {
    cudaStream_t stream = nullptr;
    FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_.reset(stream);
  }
  StreamRef get() const { return stream_.get(); }

  void fork(StreamRef stream) const {
    begin_.record(stream);
    begin_.wait_on(get());
  }
  void join(StreamRef stream) const {
    done_.record(get());
    done_.wait_on(stream);
  }

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const { (void)cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
  Event begin_{Event::Timing::off}, done_{Event::Timing::off};
};

}  // namespace fathom::lab::shared_expert_overlap
