// A mistake on the command line: main() prints it with the verb and exits with kExitUsage.
#pragma once

#include <stdexcept>
#include <utility>

#include "core/result.h"

namespace fathom::cli {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The value, or a UsageError: for files and models named on the command line.
template <class T>
T value_or_usage_error(Result<T> result) {
  if (!result) throw UsageError(result.error().message);
  return std::move(result).value();
}

}  // namespace fathom::cli
