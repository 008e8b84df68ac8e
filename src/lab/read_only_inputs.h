// Write-protects the inputs of host arenas during a call. A checksum sees that inputs are as they were after
// the call; only this sees a call that uses them as scratch memory and puts the values back.
#pragma once

#include <cstdint>

namespace fathom::lab {

// Arenas name the mappings that hold inputs, whole pages of them and nothing else.
void add_input_mapping(void* begin, int64_t bytes);
void remove_input_mapping(void* begin);

// While it lives, the first write to an input is noted, and the input becomes writable again, so that the
// call goes on. One at a time.
class ReadOnlyInputs {
 public:
  ReadOnlyInputs();
  ~ReadOnlyInputs();
  ReadOnlyInputs(const ReadOnlyInputs&)            = delete;
  ReadOnlyInputs& operator=(const ReadOnlyInputs&) = delete;

  bool written() const;
};

}  // namespace fathom::lab
