// A stream beside the harness's or the engine's. Only builds with CUDA have it. Cheap to include: no header
// of CUDA.
#pragma once

#include "cuda/stream.h"

namespace fathom {

class SideStream {
 public:
  // `first`: thread blocks of its kernels are placed before those of other streams that wait for room.
  enum class Priority { normal, first };
  // Of the calling thread's current GPU; does not wait for the legacy default stream. Throws SystemError.
  explicit SideStream(Priority priority = Priority::normal);
  ~SideStream();
  SideStream(const SideStream&)            = delete;
  SideStream& operator=(const SideStream&) = delete;

  StreamRef get() const { return stream_; }

 private:
  StreamRef stream_ = nullptr;
};

}  // namespace fathom
