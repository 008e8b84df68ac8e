// The part of L2 that is set aside for persisting lines (CUDA C++ Programming Guide, "Device Memory L2 Access
// Management"), of the current GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cuda/stream.h"

namespace fathom {

class PersistingL2 {
 public:
  PersistingL2() { set_aside(0); }

  // Device::set_aside_l2 and Device::restore_l2.
  void set_aside(int64_t bytes);
  std::optional<std::string> restore(StreamRef stream) const;

 private:
  size_t set_aside_ = 0;  // as CUDA rounded it
};

}  // namespace fathom
