// Contracts: what a caller must have made true. Always on, on the host; the text names the thing and the
// remedy.
#pragma once

#include <stdexcept>
#include <string>

namespace fathom {

// Thrown when a caller broke a contract (wrong shape, null view, impossible size). The lab turns it into a
// typed result of the variant; elsewhere it ends the program with its message.
class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Thrown when the machine failed us (a system call, an allocation): expression, file, line and errno's text.
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown when a device is of no more use to this process: after it, every call to it fails.
class DeviceLost : public SystemError {
 public:
  using SystemError::SystemError;
};

[[noreturn]] void contract_broken(const char* condition, const std::string& message, const char* file,
                                  int line);
[[noreturn]] void system_failed(const char* call, int error_number, const char* file, int line);

}  // namespace fathom

#define FATHOM_EXPECT(condition, message) \
  ((condition) ? void(0) : ::fathom::contract_broken(#condition, (message), __FILE__, __LINE__))

// For calls that return -1 and set errno; evaluates to the call's result.
#define FATHOM_SYSTEM(call)                                                      \
  ([&] {                                                                         \
    const auto result = (call);                                                  \
    if (result == -1) ::fathom::system_failed(#call, errno, __FILE__, __LINE__); \
    return result;                                                               \
  }())
