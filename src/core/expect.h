// Contracts: preconditions that callers must meet. Always checked, on the host; the message names the value
// and the remedy.
#pragma once

#ifndef __CUDACC__  // nvcc would read <string> for 2 s in every .cu file, and none of them catches
#include "core/errors.h"
#endif

namespace fathom {

// Throws ContractError.
[[noreturn]] void contract_broken(const char* condition, const char* message, const char* file, int line);
// The same with a std::string.
template <class Text>
requires requires(const Text& text) { text.c_str(); }
[[noreturn]] void contract_broken(const char* condition, const Text& message, const char* file, int line) {
  contract_broken(condition, message.c_str(), file, line);
}
// Throws SystemError.
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
