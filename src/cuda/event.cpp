#include "cuda/event.h"

#include "cuda/check.h"

namespace fathom {

Event::Event(Timing timing) {
  cudaEvent_t event = nullptr;
  FATHOM_CUDA(
      cudaEventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming));
  event_.reset(event);
}

void Event::record(StreamRef stream) const { FATHOM_CUDA(cudaEventRecord(event_.get(), stream)); }
void Event::synchronize() const { FATHOM_CUDA(cudaEventSynchronize(event_.get())); }
void Event::wait_on(StreamRef stream) const { FATHOM_CUDA(cudaStreamWaitEvent(stream, event_.get())); }

void Event::Destroy::operator()(CUevent_st* event) const { (void)cudaEventDestroy(event); }

double elapsed_ms(const Event& start, const Event& end) {
  float ms = 0;
  FATHOM_CUDA(cudaEventElapsedTime(&ms, start.get(), end.get()));
  return static_cast<double>(ms);
}

}  // namespace fathom
