// What Fathom throws, beside std::bad_alloc.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fathom {

// Thrown when a caller broke a contract (wrong shape, null view, impossible size). The lab turns it into a
// typed result of the variant; elsewhere it ends the program with its message.
class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Thrown when a system call or another call to the machine fails: expression, file, line and errno's text.
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown when an allocation exceeds the free memory.
class NotEnoughMemory : public std::runtime_error {
 public:
  NotEnoughMemory(int64_t bytes_wanted, int64_t bytes_available);
};

// Thrown when a GPU's context is lost: every later call to it in this process fails.
class DeviceLost : public SystemError {
 public:
  using SystemError::SystemError;
};

}  // namespace fathom
