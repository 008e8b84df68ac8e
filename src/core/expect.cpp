#include "core/expect.h"

#include <fmt/format.h>

#include <cstring>

namespace fathom {

void contract_broken(const char* condition, const char* message, const char* file, int line) {
  throw ContractError(fmt::format("{} (expected {} at {}:{})", message, condition, file, line));
}

void system_failed(const char* call, int error_number, const char* file, int line) {
  throw SystemError(fmt::format("{} failed: {} ({}:{})", call, std::strerror(error_number), file, line));
}

NotEnoughMemory::NotEnoughMemory(int64_t wanted, int64_t available)
    : std::runtime_error(fmt::format("{:.1f} GiB wanted, {:.1f} GiB available", wanted / 1073741824.0,
                                     available / 1073741824.0)) {}

}  // namespace fathom
