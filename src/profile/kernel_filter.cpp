#include "profile/kernel_filter.h"

#include <fmt/format.h>

#include <set>

namespace fathom::profile {

Result<KernelFilter> KernelFilter::parse(std::string_view expression) {
  constexpr std::string_view kPrefix = "regex:";
  if (expression.starts_with(kPrefix)) expression.remove_prefix(kPrefix.size());
  KernelFilter filter;
  if (expression.empty()) return filter;
  filter.expression_ = expression;
  try {
    filter.regex_.emplace(filter.expression_, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return Error{fmt::format("'{}' is no regular expression: {}", expression, error.what())};
  }
  return filter;
}

std::vector<lab::KernelRecord> KernelFilter::of(const std::vector<lab::KernelRecord>& kernels,
                                                std::string& left_out) const {
  left_out.clear();
  std::vector<lab::KernelRecord> taken;
  std::set<std::string> others;
  for (const lab::KernelRecord& kernel : kernels)
    if (takes(kernel.name))
      taken.push_back(kernel);
    else
      others.insert(kernel.name);
  if (!others.empty())
    left_out = fmt::format("{} of {} kernels match '{}'; left out: {}", taken.size(), kernels.size(),
                           expression_, fmt::join(others, ", "));
  return taken;
}

}  // namespace fathom::profile
