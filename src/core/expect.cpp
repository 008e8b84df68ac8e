#include "core/expect.h"

#include <fmt/format.h>

#include <cstring>

namespace fathom {

void contract_broken(const char* condition, const std::string& message, const char* file, int line) {
  throw ContractError(fmt::format("{} (expected {} at {}:{})", message, condition, file, line));
}

void system_failed(const char* call, int error_number, const char* file, int line) {
  throw SystemError(fmt::format("{} failed: {} ({}:{})", call, std::strerror(error_number), file, line));
}

}  // namespace fathom
