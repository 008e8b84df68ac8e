// Which kernels of a call are looked at, by a regular expression on their names, as Nsight Compute's
// --kernel-name regex:EXPRESSION.
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/profiler.h"

namespace fathom::profile {

class KernelFilter {
 public:
  KernelFilter() = default;  // every kernel
  // ECMAScript, found anywhere in the name; a leading "regex:" is left out. Empty: every kernel.
  static Result<KernelFilter> parse(std::string_view expression);

  bool takes(const std::string& kernel) const { return !regex_ || std::regex_search(kernel, *regex_); }
  bool takes_all() const { return !regex_; }
  // Of a call, in the order they came. `left_out`: a sentence about the others, where there are some.
  std::vector<lab::KernelRecord> of(const std::vector<lab::KernelRecord>& kernels,
                                    std::string& left_out) const;

 private:
  std::string expression_;
  std::optional<std::regex> regex_;
};

}  // namespace fathom::profile
