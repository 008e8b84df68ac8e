// Checks of numbers on the command line. CLI11's own print a bound as std::to_string does, which for "any
// positive number" is 300 digits; these say what is allowed in words, and --help shows the same words.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace fathom::cli {

CLI::Validator whole_between(int64_t least, int64_t most);
// `most` only keeps a typo from asking for the impossible: it is named where it is exceeded, nowhere else.
CLI::Validator whole_at_least(int64_t least, int64_t most = int64_t{1} << 40);

// Finite numbers. NaN passes none of the checks.
CLI::Validator between(double least, double most);
CLI::Validator at_least(double least);
CLI::Validator above_zero();
CLI::Validator above_zero_or_inf();

}  // namespace fathom::cli
