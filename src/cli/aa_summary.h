// What `fathom run --aa` found: the method tried on baselines against themselves.
#pragma once

#include <iterator>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/record.h"

namespace fathom::cli {

struct AaSummary {
  int points = 0;                   // with an A/A comparison
  std::vector<std::string> wrong;   // where the baseline was FASTER or SLOWER than itself, or INVALID
  int heavier = 0;                  // points with a comparison against 5 % more work
  int calls = 0, calls_found = 0;   // of these, the ones whose extra work is more of the same calls
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
// fathom.aa/1 (docs/records.md): the counts, and both ratios of every point.
nlohmann::json aa_json(const lab::RunRecord& run);
// Adds to a record what an earlier one says of experiments that `run` did not take.
void add_earlier(nlohmann::json& record, const nlohmann::json& earlier, const lab::RunRecord& run);
// Writes that as <results>/<machine>/aa.json and returns the path. What it says of other experiments stays,
// each point with its own commit, so that a long list can be measured in pieces.
std::string record_aa(const std::string& results, const lab::RunRecord& run);

}  // namespace fathom::cli
