#include "cli/number_check.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace fathom::cli {
namespace {

// Passes what converts to T and is `allowed`. `what` is for --help and, behind "must be", for the message.
template <class T, class Allowed>
CLI::Validator number_check(const std::string& what, Allowed allowed) {
  return CLI::Validator(
      [what, allowed](std::string& text) {
        T value{};
        if (CLI::detail::lexical_cast(text, value) && allowed(value)) return std::string();
        return fmt::format("must be {}, not '{}'", what, text);
      },
      what);
}

}  // namespace

CLI::Validator whole_between(int64_t least, int64_t most) {
  return number_check<int64_t>(fmt::format("a whole number between {} and {}", least, most),
                               [=](int64_t value) { return least <= value && value <= most; });
}

CLI::Validator whole_at_least(int64_t least, int64_t most) {
  const auto what = fmt::format("a whole number of at least {}", least);
  return CLI::Validator(
      [=](std::string& text) {
        int64_t value  = 0;
        const bool one = CLI::detail::lexical_cast(text, value);
        if (one && value > most) return fmt::format("must be at most {}, not '{}'", most, text);
        return one && value >= least ? std::string() : fmt::format("must be {}, not '{}'", what, text);
      },
      what);
}

CLI::Validator between(double least, double most) {
  return number_check<double>(fmt::format("between {} and {}", least, most),
                              [=](double value) { return least <= value && value <= most; });
}

CLI::Validator at_least(double least) {
  return number_check<double>(fmt::format("at least {}", least),
                              [=](double value) { return value >= least && std::isfinite(value); });
}

CLI::Validator above_zero() {
  return number_check<double>("above 0", [](double value) { return value > 0 && std::isfinite(value); });
}

CLI::Validator above_zero_or_inf() {
  return number_check<double>("above 0, or inf", [](double value) { return value > 0; });
}

}  // namespace fathom::cli
