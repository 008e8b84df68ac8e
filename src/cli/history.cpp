// fathom history: the medians of every variant over all runs of this machine, and their change points.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/history.h"
#include "lab/quantity.h"
#include "machine/machine_id.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct HistoryFlags {
  std::string filter, machine;
  int64_t last          = 0;
  bool check            = false;
  double margin_percent = 2;
  OutputFlags outputs;
};

std::string id_of(const lab::Series& series) {
  return fmt::format("{}/{}{}{}", series.experiment, series.variant, series.at.empty() ? "" : "?", series.at);
}

// The newest few, oldest first.
std::string medians_text(const lab::Series& series) {
  constexpr size_t kShown = 6;
  const size_t first      = series.points.size() > kShown ? series.points.size() - kShown : 0;
  std::string text        = first > 0 ? "... " : "";
  for (size_t i = first; i < series.points.size(); ++i)
    text += (i > first ? ", " : "") + lab::time_text(series.points[i].time_ns);
  return text;
}

std::string changes_text(const lab::Series& series, const lab::SeriesChanges& changes) {
  std::string text;
  const auto add = [&](const measure::ChangePoint& change, const std::string& before,
                       const std::string& after) {
    const lab::HistoryPoint& at = series.points[static_cast<size_t>(change.index)];
    text += fmt::format("{}{}: {} -> {}", text.empty() ? "" : "; ", at.started.substr(0, 10), before, after);
  };
  for (const auto& change : changes.time)
    add(change, lab::time_text(change.before), lab::time_text(change.after));
  for (const auto& change : changes.ratio)
    add(change, lab::ratio_text(change.before), lab::ratio_text(change.after));
  return text;
}

// The newest change of level where the new level is worse by more than the margin, in words. Ratios decide
// where every run has one: they compare across days and neighbours.
std::optional<std::string> regression_text(const lab::Series& series, double margin) {
  const lab::SeriesChanges changes = changes_of(series);
  const bool by_ratio              = std::all_of(series.points.begin(), series.points.end(),
                                                 [](const auto& point) { return point.ratio.has_value(); });
  const auto& levels               = by_ratio ? changes.ratio : changes.time;
  if (levels.empty()) return std::nullopt;
  const measure::ChangePoint& newest = levels.back();
  const double worse                 = by_ratio ? newest.before / newest.after : newest.after / newest.before;
  if (!(worse > 1 + margin)) return std::nullopt;
  const auto text     = by_ratio ? lab::ratio_text : lab::time_text;
  const auto& first   = series.points[static_cast<size_t>(newest.index)];
  const auto& earlier = series.points[static_cast<size_t>(newest.index) - 1];
  return fmt::format("{}: {} -> {} since {}, commit {} after {}, p = {:.2g}", id_of(series),
                     text(newest.before), text(newest.after), first.started, first.commit, earlier.commit,
                     newest.p_value);
}

// Prints what became worse. The exit code of --check.
int check_histories(const std::vector<lab::Series>& all, double margin) {
  int worse = 0;
  for (const lab::Series& series : all)
    if (const auto text = regression_text(series, margin)) {
      ++worse;
      fmt::print(stderr, "worse: {}\n", *text);
    }
  fmt::print(stderr, "{} of {} histories became worse; of {} that did not change, chance would show {:.1f}\n",
             worse, all.size(), all.size(),
             measure::ChangePointOptions{}.significance * static_cast<double>(all.size()));
  return worse > 0 ? kExitRegression : kExitOk;
}

Table history_table(const std::vector<lab::Series>& all) {
  Table table{.columns = {{"result"},
                          {"runs", true},
                          {"medians, oldest first"},
                          {"ratio now", true},
                          {"changed level"}},
              .rows    = {}};
  for (const lab::Series& series : all) {
    const auto& ratio = series.points.back().ratio;
    table.rows.push_back({id_of(series), std::to_string(series.points.size()), medians_text(series),
                          ratio ? lab::ratio_text(*ratio) : "", changes_text(series, changes_of(series))});
  }
  return table;
}

Table history_values(const std::vector<lab::Series>& all) {
  Table table{.columns = {{"machine"},
                          {"result"},
                          {"started"},
                          {"label"},
                          {"commit"},
                          {"source_hash"},
                          {"time_ns"},
                          {"ratio"}},
              .rows    = {}};
  for (const lab::Series& series : all)
    for (const lab::HistoryPoint& point : series.points)
      table.rows.push_back({series.machine, id_of(series), point.started, point.label, point.commit,
                            point.source_hash, fmt::format("{:.6g}", point.time_ns),
                            point.ratio ? fmt::format("{:.6g}", *point.ratio) : ""});
  return table;
}

json changes_json(const lab::Series& series, const std::vector<measure::ChangePoint>& changes) {
  json list = json::array();
  for (const measure::ChangePoint& change : changes)
    list.push_back({{"started", series.points[static_cast<size_t>(change.index)].started},
                    {"before", change.before},
                    {"after", change.after},
                    {"p_value", change.p_value}});
  return list;
}

json history_json(const std::vector<lab::Series>& all) {
  json list = json::array();
  for (const lab::Series& series : all) {
    json points = json::array();
    for (const lab::HistoryPoint& point : series.points)
      points.push_back({{"started", point.started},
                        {"label", point.label},
                        {"commit", point.commit},
                        {"source_hash", point.source_hash},
                        {"time_ns", point.time_ns},
                        {"ratio", point.ratio ? json(*point.ratio) : json(nullptr)}});
    const lab::SeriesChanges changes = changes_of(series);
    list.push_back({{"machine", series.machine},
                    {"id", id_of(series)},
                    {"points", points},
                    {"time_changes", changes_json(series, changes.time)},
                    {"ratio_changes", changes_json(series, changes.ratio)}});
  }
  return {{"schema", "fathom.history/1"}, {"series", list}};
}

int history(const HistoryFlags& flags) {
  const std::string path    = lab::history_path();
  const std::string machine = flags.machine == "all"  ? ""
                              : flags.machine.empty() ? machine::machine_id()
                                                      : flags.machine;
  const auto all = lab::read_history(path, {.machine = machine, .pattern = flags.filter, .last = flags.last});
  if (!all) throw UsageError(all.error().message);
  if (write_outputs(flags.outputs, {[&] { return history_json(*all); }, [&] { return history_values(*all); },
                                    [&] { return history_table(*all); }}))
    return flags.check ? check_histories(*all, flags.margin_percent / 100) : kExitOk;
  if (all->empty())
    fmt::print(stderr, "fathom history: {} has nothing of {} that matches; every `fathom run` adds to it\n",
               path, machine.empty() ? "any machine" : machine);
  fmt::print("{}", to_text(history_table(*all)));
  return flags.check ? check_histories(*all, flags.margin_percent / 100) : kExitOk;
}

}  // namespace

void add_history(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<HistoryFlags>();
  CLI::App& verb = *app.add_subcommand("history", "Show medians over time, and where they changed level");
  verb.add_option("-f,--filter", flags->filter, "Only results whose id matches this REGEX");
  verb.add_option("--machine", flags->machine, "Runs of this machine, or \"all\" (default: the one at hand)");
  verb.add_option("--last", flags->last, "Only so many runs of each (default: all)")
      ->check(whole_at_least(1));
  verb.add_flag("--check", flags->check,
                "Exit with 1 where the newest change of level is for the worse by more than --margin");
  verb.add_option("--margin", flags->margin_percent,
                  "Equivalence margin in percent: smaller differences count as none")
      ->check(between(0, 100))
      ->capture_default_str();
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = history(*flags); });
}

}  // namespace fathom::cli
