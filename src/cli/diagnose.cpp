// fathom diagnose: what limits the variants of a run or a record, how sure that is, and what to try.
#include "diagnose/diagnosis.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/diagnosed_results.h"
#include "cli/expectations.h"
#include "cli/output_flags.h"
#include "cli/run_folder.h"
#include "cli/target_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/quantity.h"
#include "lab/registry.h"

namespace fathom::cli {
namespace {

constexpr size_t kFindingsShown   = 3;   // the rest is in --json
constexpr size_t kMostWithUnknown = 20;  // of more results, those of which nothing is known are counted

struct DiagnoseFlags {
  std::vector<std::string> names;
  std::string artifacts = "artifacts", results, machine;
  bool list_rules       = false;
  OutputFlags outputs;
};

std::string criterion_text(const diagnose::Criterion& criterion) {
  return fmt::format("{} {} {}", criterion.quantity,
                     criterion.at_least ? ">=" : "<=", lab::digits_text(criterion.threshold));
}

template <class Texts, class Text>
std::string joined(const Texts& texts, Text&& text, std::string_view between = ", ") {
  std::string all;
  for (const auto& one : texts) all += (all.empty() ? "" : std::string(between)) + text(one);
  return all;
}

Table rule_table() {
  Table table{
      .columns = {{"cause", false, false, true}, {"fires where"}, {"threshold from"}, {"cure"}, {"shown by"}},
      .rows    = {}};
  for (const diagnose::Rule& rule : diagnose::rules())
    table.rows.push_back({std::string(rule.cause), joined(rule.when, criterion_text),
                          joined(
                              rule.when, [](const auto& c) { return std::string(c.source); }, "; "),
                          joined(rule.cures, [](auto cure) { return std::string(cure); }),
                          joined(rule.shown, [](const diagnose::Shown& shown) {
                            return fmt::format("{}/{}", shown.experiment, shown.variant);
                          })});
  return table;
}

// On the processor that the result ran on, where a cure is shown there.
std::vector<diagnose::Shown> shown_for(const diagnose::Rule& rule, bool on_gpu) {
  std::vector<diagnose::Shown> fitting;
  for (const diagnose::Shown& shown : rule.shown) {
    const lab::ExperimentInfo* experiment = lab::find_experiment(shown.experiment);
    if (experiment && (experiment->backend == lab::Backend::cuda) == on_gpu) fitting.push_back(shown);
  }
  return fitting.empty() ? rule.shown : fitting;
}

std::string shown_text(const diagnose::Shown& shown, const Gained& gained) {
  const std::string id = fmt::format("{}/{}", shown.experiment, shown.variant);
  const auto found     = gained.find(id);
  if (found == gained.end()) return id;
  return fmt::format("{} ({} on {})", id, lab::ratio_text(found->second.ratio), found->second.machine);
}

// "bank_conflicts (counted_shared_wavefronts)" without the prefix that all of them have.
std::string untried_text(const diagnose::Untried& untried) {
  return fmt::format("{} ({})", untried.rule->cause, joined(untried.lacks, [](const std::string& part) {
                       constexpr std::string_view kPrefix = "counted_";
                       return part.starts_with(kPrefix) ? part.substr(kPrefix.size()) : part;
                     }));
}

std::string finding_text(size_t number, const diagnose::Finding& finding, bool on_gpu, const Gained& gained) {
  const std::string indent = "      ";
  std::string text         = wrapped(
              fmt::format("{} ({}): {}", finding.rule->cause, to_string(finding.certainty), finding.rule->what),
              text_columns(), fmt::format("  {} ", number));
  for (const diagnose::Evidence& evidence : finding.evidence)
    text += wrapped(evidence.text(), text_columns(), indent + "seen: ");
  if (finding.gain)
    text += wrapped(gain_text(*finding.gain) + ", by arithmetic on these numbers", text_columns(),
                    indent + "gain: ");
  text +=
      wrapped(fmt::format("{}, as in {}", joined(finding.rule->cures, [](auto c) { return std::string(c); }),
                          joined(shown_for(*finding.rule, on_gpu),
                                 [&](const diagnose::Shown& shown) { return shown_text(shown, gained); })),
              text_columns(), indent + "try:  ");
  return text;
}

std::string one_text(const DiagnosedResult& result, const Gained& gained) {
  const diagnose::Diagnosis& d = result.diagnosis;
  std::string text             = fmt::format(
                  "{}: {}{}\n", result.id, lab::time_text(result.time_ns),
      result.share ? fmt::format(", {} of {}", lab::share_text(*result.share), result.limit) : std::string());
  text += wrapped(bound_text(d), text_columns(), "  limited by ");
  for (size_t f = 0; f < std::min(d.findings.size(), kFindingsShown); ++f)
    text += finding_text(f + 1, d.findings[f], result.on_gpu, gained);
  if (d.findings.size() > kFindingsShown)
    text += fmt::format("  and {} more: --json\n", d.findings.size() - kFindingsShown);
  if (d.findings.empty()) text += wrapped(sentence(d), text_columns(), "  ");
  for (const std::string& remark : d.remarks) text += wrapped(remark, text_columns(), "  note: ");
  if (!d.not_it.empty())
    text += wrapped(joined(d.not_it, [](const diagnose::Rule* rule) { return std::string(rule->cause); }),
                    text_columns(), "  not it: ");
  if (!d.untried.empty() && d.counters)
    text += wrapped(joined(d.untried, untried_text), text_columns(), "  not tried, for want of: ");
  if (!d.counters && result.on_gpu)
    text += wrapped(fmt::format("{} rules need counters: fathom run {} --profile --ncu-metric-set deep_dive",
                                d.untried.size(), result.target),
                    text_columns(), "  not tried: ");
  if (!result.on_gpu && !d.untried.empty())
    text +=
        wrapped(fmt::format("{}: fathom run {} --profile", joined(d.untried, untried_text), result.target),
                text_columns(), "  not tried, for want of: ");
  return text;
}

Table result_rows(const std::vector<DiagnosedResult>& results, const Gained& gained, bool fold_unknown) {
  Table table{
      .columns =
          {{"result", false, false, true}, {"of limit", true}, {"cause"}, {"sure?"}, {"seen"}, {"cured in"}},
      .rows = {}};
  for (const DiagnosedResult& result : results) {
    const std::string share = result.share ? lab::share_text(*result.share) : std::string(lab::kAbsent);
    if (result.diagnosis.findings.empty()) {
      if (fold_unknown) continue;
      table.rows.push_back({result.id, share, std::string(lab::kAbsent), "", sentence(result.diagnosis), ""});
      continue;
    }
    const diagnose::Finding& main = result.diagnosis.findings.front();
    const diagnose::Evidence& e   = main.evidence.front();
    const diagnose::Shown shown   = shown_for(*main.rule, result.on_gpu).front();
    const std::string cured       = fmt::format("{}/{}", shown.experiment, shown.variant);
    const auto gain               = gained.find(cured);
    // At its limit it can only do less, which its own lines say.
    const bool at_limit = main.rule->unit == "limit_share";
    table.rows.push_back(
        {result.id, share, std::string(main.rule->cause), std::string(to_string(main.certainty)),
         diagnose::quantity_text(e.criterion.quantity, e.value),
         at_limit               ? std::string(lab::kAbsent)
         : gain == gained.end() ? cured
                                : fmt::format("{}, {}", cured, lab::ratio_text(gain->second.ratio))});
  }
  return table;
}

void print_table(const std::vector<DiagnosedResult>& results, const Gained& gained) {
  const bool fold    = results.size() > kMostWithUnknown;
  const auto unknown = std::count_if(results.begin(), results.end(), [](const DiagnosedResult& result) {
    return result.diagnosis.findings.empty();
  });
  fmt::print("{}\n", to_text(result_rows(results, gained, fold)));
  if (fold && unknown > 0)
    fmt::print(
        "{}", wrapped(fmt::format("of {} others nothing is known: far from their limit, and without counters "
                                  "(fathom run --profile --ncu-metric-set deep_dive)",
                                  unknown)));
  fmt::print("fathom diagnose with one of these ids shows evidence, gain and what else was tried.\n");
}

nlohmann::json results_json(const Diagnosed& diagnosed) {
  nlohmann::json results = nlohmann::json::array();
  for (const DiagnosedResult& result : diagnosed.results) {
    nlohmann::json one = to_json(result.diagnosis);
    one["id"]          = result.id;
    one["time_ns"]     = result.time_ns;
    one["limit"]       = result.limit;
    results.push_back(std::move(one));
  }
  return {{"schema", "fathom.diagnosis/1"},
          {"machine", diagnosed.machine},
          {"from", diagnosed.from},
          {"results", std::move(results)}};
}

int run_diagnose(const DiagnoseFlags& flags) {
  if (flags.list_rules) {
    if (!write_outputs(flags.outputs, {[] { return nlohmann::json(); }, rule_table, rule_table}))
      fmt::print("{}", to_text(rule_table()));
    return kExitOk;
  }
  const std::string results = results_folder(flags.results);
  const Diagnosed diagnosed = diagnosed_results(
      {.names = flags.names, .artifacts = flags.artifacts, .results = results, .machine = flags.machine});
  const Gained gained = recorded_gains(results, diagnosed.machine);
  const auto table    = [&] { return result_rows(diagnosed.results, gained, false); };
  if (write_outputs(flags.outputs, {[&] { return results_json(diagnosed); }, table, table})) return kExitOk;
  if (diagnosed.results.size() == 1)
    fmt::print("{}", one_text(diagnosed.results.front(), gained));
  else
    print_table(diagnosed.results, gained);
  fmt::print(stderr, "from {}, machine {}\n", diagnosed.from, diagnosed.machine);
  return kExitOk;
}

}  // namespace

void add_diagnose(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DiagnoseFlags>();
  CLI::App& verb =
      *app.add_subcommand("diagnose", "Say what limits a variant, how sure that is, and what to try");
  verb.add_option(
      "names", flags->names,
      "Targets (ch07:transpose_gpu/naive), and a run or a record to take them from (default: the newest "
      "run that has them, or else the records)");
  add_artifacts_flag(verb, flags->artifacts);
  verb.add_option("--results-dir", flags->results, "Where records of machines are kept (default: results)");
  verb.add_option("--machine", flags->machine,
                  "Records of this machine: h100-80gb-hbm3 (default: this one's)");
  verb.add_flag("--rules", flags->list_rules, "The rules: thresholds, where they come from, cures");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = run_diagnose(*flags); });
}

}  // namespace fathom::cli
