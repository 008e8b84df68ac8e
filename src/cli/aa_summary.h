// What `fathom run --aa` found: the method tried on baselines against themselves.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "lab/record.h"

namespace fathom::cli {

struct AaSummary {
  int points = 0;                   // with an A/A comparison
  std::vector<std::string> wrong;   // where the baseline was FASTER or SLOWER than itself
  int heavier = 0;                  // points with a comparison against 5 % more work
  std::vector<std::string> missed;  // where that was not SLOWER
  std::vector<std::string> none;    // experiments without an A/A comparison

  double found() const {  // share of the heavier ones
    return heavier == 0 ? 1 : 1 - static_cast<double>(missed.size()) / heavier;
  }
  bool holds() const { return wrong.empty() && 10 * std::ssize(missed) <= heavier; }
};
AaSummary aa_summary(const lab::RunRecord& run);

// Two counts, and the points where the method failed, a line each.
std::string aa_text(const AaSummary& summary);

}  // namespace fathom::cli
