#include "lab/expectation_trend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "lab/target.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

std::vector<double> present(const std::vector<std::optional<double>>& values) {
  std::vector<double> found;
  for (const auto& value : values)
    if (value) found.push_back(*value);
  return found;
}

// A record and a run may list parameters in different orders.
Point by_name(const Point& at) {
  auto parameters = at.parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const Point::Parameter& a, const Point::Parameter& b) { return a.name < b.name; });
  return Point(std::move(parameters));
}

// Calls visit(result, metric, value) for every quantity of an experiment.
template <class F>
void each_quantity(const ExperimentRecord& experiment, F&& visit) {
  for (const PointRecord& point : experiment.points) {
    if (point.cache == "cold_process") continue;
    for (const VariantRecord& variant : point.variants) {
      if (variant.status != Outcome::ok) continue;
      const std::string result = result_id(experiment.id, variant.id, by_name(point.at));
      if (variant.time_ns) visit(result, "time_ns", Metric{variant.time_ns->median, "lower"});
      if (variant.ratio) visit(result, "ratio", Metric{variant.ratio->median, "higher"});
      if (variant.share_of_limit) visit(result, "share_of_limit", Metric{*variant.share_of_limit, "higher"});
      for (const auto& [name, metric] : variant.metrics) visit(result, name, metric);
    }
  }
}

nlohmann::json maybe(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

int Trend::runs() const { return static_cast<int>(present(values).size()); }

int Trend::worse(double margin) const {
  if (!expected) return 0;
  const double allowed = margin * std::abs(*expected);
  const auto found     = present(values);
  return static_cast<int>(std::count_if(found.begin(), found.end(), [&](double value) {
    return better == "lower" ? value > *expected + allowed : value < *expected - allowed;
  }));
}

std::optional<double> Trend::median() const {
  const auto found = present(values);
  return found.empty() ? std::nullopt : std::optional(measure::median(found));
}

std::optional<double> Trend::newest() const {
  const auto found = present(values);
  return found.empty() ? std::nullopt : std::optional(found.back());
}

std::optional<double> Trend::spread() const {
  const auto found = present(values);
  if (found.size() < 2 || measure::median(found) == 0) return std::nullopt;
  const auto [least, most] = std::minmax_element(found.begin(), found.end());
  return (*most - *least) / std::abs(measure::median(found));
}

std::optional<double> Trend::change() const {
  const auto now = newest();
  if (!now || !expected || *expected == 0) return std::nullopt;
  return *now / *expected - 1;
}

Result<Trends> trends_of(const std::vector<RunRecord>& runs, const std::vector<Expectation>& expected,
                         const std::string& filter) {
  std::regex pattern;
  try {
    pattern = std::regex(filter);
  } catch (const std::regex_error& error) {
    return Error{fmt::format("the filter '{}' is no regular expression: {}", filter, error.what())};
  }
  Trends trends;
  if (!runs.empty()) trends.machine = runs.back().machine;
  std::map<std::pair<std::string, std::string>, Trend> found;
  std::map<std::string, std::string> newest_hash;  // by experiment
  for (size_t r = 0; r < runs.size(); ++r) {
    trends.started.push_back(runs[r].started);
    for (const ExperimentRecord& experiment : runs[r].experiments) {
      newest_hash[experiment.id] = experiment.source_hash;
      each_quantity(experiment,
                    [&](const std::string& result, const std::string& name, const Metric& metric) {
                      if (!filter.empty() && !std::regex_search(result + " " + name, pattern)) return;
                      Trend& trend = found[{result, name}];
                      trend.result = result;
                      trend.metric = name;
                      trend.better = metric.better;
                      trend.values.resize(runs.size());
                      trend.values[r] = metric.value;
                    });
    }
  }
  for (const Expectation& record : expected)
    for (const ExperimentRecord& experiment : record.record.experiments)
      each_quantity(experiment,
                    [&](const std::string& result, const std::string& name, const Metric& metric) {
                      const auto trend = found.find({result, name});
                      if (trend == found.end()) return;
                      trend->second.expected = metric.value;
                      trend->second.stale    = newest_hash[experiment.id] != experiment.source_hash;
                    });
  for (auto& [key, trend] : found) trends.all.push_back(std::move(trend));
  return trends;
}

nlohmann::json to_json(const Trends& trends, double margin) {
  nlohmann::json all = nlohmann::json::array();
  for (const Trend& trend : trends.all) {
    nlohmann::json values = nlohmann::json::array();
    for (const auto& value : trend.values) values.push_back(maybe(value));
    all.push_back({{"result", trend.result},
                   {"metric", trend.metric},
                   {"better", trend.better},
                   {"expected", maybe(trend.expected)},
                   {"stale", trend.stale},
                   {"values", values},
                   {"median", maybe(trend.median())},
                   {"spread", maybe(trend.spread())},
                   {"change", maybe(trend.change())},
                   {"worse_runs", trend.worse(margin)}});
  }
  return {{"schema", "fathom.trends/1"},
          {"machine", trends.machine},
          {"runs", trends.started},
          {"margin", margin},
          {"trends", all}};
}

}  // namespace fathom::lab
