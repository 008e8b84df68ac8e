// Streams beside the harness's, for builds with CUDA. Their work starts after fork() and is over for whoever
// comes after join(), so the events with which the harness times a call enclose it.
#pragma once

#include <memory>
#include <vector>

#include "cuda/check.h"
#include "cuda/event.h"
#include "cuda/stream.h"

namespace fathom::lab {

class SideStreams {
 public:
  enum class Priority { normal, high };

  // Of the calling thread's current GPU. Made while a variant prepares, never on the timed path.
  explicit SideStreams(int count, Priority priority = Priority::normal) {
    int least = 0, greatest = 0;  // the greatest priority is the smallest number
    FATHOM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int s = 0; s < count; ++s) {
      cudaStream_t stream = nullptr;
      FATHOM_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                               priority == Priority::high ? greatest : least));
      streams_.emplace_back(stream);
      done_.emplace_back(Event::Timing::off);
    }
  }

  int size() const { return static_cast<int>(streams_.size()); }
  StreamRef operator[](int64_t s) const { return streams_[static_cast<size_t>(s)].get(); }

  // Work that the side streams get from now on waits for what `stream` has got so far.
  void fork(StreamRef stream) const {
    begin_.record(stream);
    for (const auto& side : streams_) begin_.wait_on(side.get());
  }
  // Work that `stream` gets from now on waits for what the side streams have got so far.
  void join(StreamRef stream) const {
    for (size_t s = 0; s < streams_.size(); ++s) {
      done_[s].record(streams_[s].get());
      done_[s].wait_on(stream);
    }
  }

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const { (void)cudaStreamDestroy(stream); }
  };
  std::vector<std::unique_ptr<CUstream_st, Destroy>> streams_;
  Event begin_{Event::Timing::off};
  std::vector<Event> done_;
};

}  // namespace fathom::lab
