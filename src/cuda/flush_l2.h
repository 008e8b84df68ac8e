// The L2 flush of cold measurements: reads a buffer of three times the size of L2, so that nothing a call
// left there survives, and no dirty line is left to be written back during the next call.
#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace fathom {

class L2Flush {
 public:
  // For the current GPU; fills its buffer on `stream`.
  explicit L2Flush(StreamRef stream);
  ~L2Flush();
  L2Flush(const L2Flush&)            = delete;
  L2Flush& operator=(const L2Flush&) = delete;

  // Returns at once. Persisting lines become normal first, or they would survive.
  void enqueue(StreamRef stream) const;

 private:
  void* buffer_   = nullptr;
  int64_t bytes_  = 0;
  uint32_t* sink_ = nullptr;
};

}  // namespace fathom
