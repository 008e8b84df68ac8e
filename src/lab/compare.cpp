#include "lab/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "lab/target.h"

namespace fathom::lab {
namespace {

using measure::Interval;

constexpr double kControlMoved = 0.03;  // a control that moved more: the machine had changed

template <class T>
std::optional<Interval> divide(const std::optional<T>& above, const std::optional<T>& below) {
  if (!above || !below || !(below->lo > 0) || !(above->lo > 0)) return std::nullopt;
  return Interval{above->median / below->median, above->lo / below->hi, above->hi / below->lo};
}

// Records list parameters by name, declarations in their own order: both are the same point.
Point sorted(const Point& at) {
  auto parameters = at.parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const Point::Parameter& a, const Point::Parameter& b) { return a.name < b.name; });
  return Point(std::move(parameters));
}

struct Entry {
  const PointRecord* point;
  const VariantRecord* variant;
};

struct Results {
  std::vector<std::string> order;
  std::map<std::string, Entry> of;
  std::map<std::string, const ExperimentRecord*> experiment;
};

Results results_of(const RunRecord& run, const std::regex& filter) {
  Results results;
  for (const ExperimentRecord& experiment : run.experiments)
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants) {
        const std::string id = result_id(experiment.id, variant.id, sorted(point.at));
        if (!std::regex_search(id, filter) || !results.of.emplace(id, Entry{&point, &variant}).second)
          continue;
        results.order.push_back(id);
        results.experiment[id] = &experiment;
      }
  return results;
}

// Why times of the two runs cannot be compared; empty when they can.
std::string why_times_are_advisory(const RunRecord& a, const RunRecord& b, const Entry& in_a,
                                   const Entry& in_b) {
  if (a.machine != b.machine) return fmt::format("machines differ: {} and {}", a.machine, b.machine);
  const auto &control_a = in_a.variant->limit_rate, &control_b = in_b.variant->limit_rate;
  if (!control_a || !control_b || !(*control_a > 0) || !(*control_b > 0))
    return "no control says whether the machine was the same";
  const double moved = std::abs(std::log(*control_b / *control_a));
  if (moved > std::log1p(kControlMoved))
    return fmt::format("the control moved by {:.0f} %", 100 * std::expm1(moved));
  return "";
}

bool aa_failed(const Entry& entry) { return entry.point->aa && entry.point->aa->advisory; }

ComparedVariant compared(const RunRecord& a, const RunRecord& b, const Entry& in_a, const Entry& in_b,
                         double margin) {
  const VariantRecord &va = *in_a.variant, &vb = *in_b.variant;
  ComparedVariant row{.experiment   = {},
                      .variant      = vb.id,
                      .at           = in_b.point->at,
                      .time_a       = va.time_ns,
                      .time_b       = vb.time_ns,
                      .ratio_a      = va.ratio,
                      .ratio_b      = vb.ratio,
                      .status_a     = va.status,
                      .status_b     = vb.status,
                      .time_change  = divide(va.time_ns, vb.time_ns),
                      .ratio_change = divide(vb.ratio, va.ratio),
                      .why          = {}};
  const bool same_baseline = in_a.point->baseline == in_b.point->baseline;
  row.by_ratio             = row.ratio_change && same_baseline;
  if (va.status != Outcome::ok || vb.status != Outcome::ok) {
    row.advisory = true;
    row.why      = fmt::format("status: {}, then {}", to_string(va.status), to_string(vb.status));
  } else if (va.verdict == "INVALID" || vb.verdict == "INVALID") {
    row.advisory = true;
    row.verdict  = measure::Verdict::invalid;
    row.why      = "a measurement was invalid";
  } else if (in_a.point->cache != in_b.point->cache) {
    row.advisory = true;
    row.why      = fmt::format("cache states differ: {} and {}", in_a.point->cache, in_b.point->cache);
  } else if (row.by_ratio) {
    row.verdict  = measure::judge(row.ratio_change, margin);
    row.advisory = aa_failed(in_a) || aa_failed(in_b);
    if (row.advisory) row.why = "an A/A control failed";
  } else {
    row.verdict  = measure::judge(row.time_change, margin);
    row.why      = why_times_are_advisory(a, b, in_a, in_b);
    row.advisory = !row.why.empty() || !row.time_change;
    if (!row.time_change) row.why = "not measured in both";
    if (row.ratio_change) row.why = "the baselines differ, so only times compare";
  }
  return row;
}

}  // namespace

bool Comparison::regressed() const {
  return std::any_of(variants.begin(), variants.end(), [](const auto& v) { return v.regressed(); });
}

std::optional<Interval> quotient(const std::optional<Spread>& a, const std::optional<Spread>& b) {
  return divide(a, b);
}

Result<Comparison> compare(const RunRecord& a, const RunRecord& b, const CompareOptions& options) {
  std::regex filter;
  try {
    filter = std::regex(options.filter);
  } catch (const std::regex_error& error) {
    return Error{fmt::format("'{}' is not a regular expression: {}", options.filter, error.what())};
  }
  const Results in_a = results_of(a, filter), in_b = results_of(b, filter);
  Comparison out{.label_a   = a.label,
                 .label_b   = b.label,
                 .machine_a = a.machine,
                 .machine_b = b.machine,
                 .variants  = {},
                 .only_a    = {},
                 .only_b    = {}};
  for (const std::string& id : in_a.order)
    if (!in_b.of.contains(id)) out.only_a.push_back(id);
  for (const std::string& id : in_b.order) {
    const auto found = in_a.of.find(id);
    if (found == in_a.of.end()) {
      out.only_b.push_back(id);
      continue;
    }
    out.variants.push_back(compared(a, b, found->second, in_b.of.at(id), options.margin));
    out.variants.back().experiment = in_b.experiment.at(id)->id;
  }
  return out;
}

nlohmann::json to_json(const Comparison& comparison) {
  using nlohmann::json;
  const auto interval = [](const auto& i) -> json {
    return i ? json{{"median", i->median}, {"lo", i->lo}, {"hi", i->hi}} : json(nullptr);
  };
  json rows = json::array();
  for (const ComparedVariant& row : comparison.variants)
    rows.push_back({{"id", result_id(row.experiment, row.variant, row.at)},
                    {"verdict", measure::name(row.verdict)},
                    {"by", row.by_ratio ? "ratio" : "time"},
                    {"advisory", row.advisory},
                    {"why", row.why.empty() ? json(nullptr) : json(row.why)},
                    {"regressed", row.regressed()},
                    {"status", {{"a", to_string(row.status_a)}, {"b", to_string(row.status_b)}}},
                    {"time_ns", {{"a", interval(row.time_a)}, {"b", interval(row.time_b)}}},
                    {"ratio", {{"a", interval(row.ratio_a)}, {"b", interval(row.ratio_b)}}},
                    {"time_change", interval(row.time_change)},
                    {"ratio_change", interval(row.ratio_change)}});
  return {{"schema", "fathom.comparison/1"},
          {"a", {{"label", comparison.label_a}, {"machine", {{"id", comparison.machine_a}}}}},
          {"b", {{"label", comparison.label_b}, {"machine", {{"id", comparison.machine_b}}}}},
          {"regressed", comparison.regressed()},
          {"only_a", comparison.only_a},
          {"only_b", comparison.only_b},
          {"variants", rows}};
}

}  // namespace fathom::lab
