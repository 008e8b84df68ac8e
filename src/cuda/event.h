// A CUDA event with one owner. Only builds with CUDA have it. Cheap to include: no header of CUDA.
#pragma once

#include <memory>

#include "cuda/stream.h"

struct CUevent_st;

namespace fathom {

class Event {
 public:
  enum class Timing { on, off };  // off costs less, and elapsed_ms() wants it on
  // Of the calling thread's current GPU, as its streams must be. Throws SystemError, as all of these do.
  explicit Event(Timing timing = Timing::on);

  void record(StreamRef stream) const;
  void synchronize() const;              // waits on the host for the work before the last record()
  void wait_on(StreamRef stream) const;  // work that `stream` gets from now on waits for it
  CUevent_st* get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// Between two events that have completed.
double elapsed_ms(const Event& start, const Event& end);

}  // namespace fathom
