// What the person at the keyboard got wrong: main() prints it with the verb and exits with 5.
#pragma once

#include <stdexcept>

namespace fathom::cli {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fathom::cli
