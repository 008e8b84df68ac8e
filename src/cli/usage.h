// What the person at the keyboard got wrong: main() prints it with the verb and exits with 5.
#pragma once

#include <stdexcept>
#include <utility>

#include "core/result.h"

namespace fathom::cli {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// For results of what the person named: a file, a model.
template <class T>
T value_or_usage_error(Result<T> result) {
  if (!result) throw UsageError(result.error().message);
  return std::move(result).value();
}

}  // namespace fathom::cli
