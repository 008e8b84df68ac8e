// fathom diff: two variants side by side, the difference of their sources, times, counters and metrics.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cli/diagnosed_results.h"
#include "cli/expectations.h"
#include "cli/run_folder.h"
#include "cli/target_flags.h"
#include "cli/usage_error.h"
#include "cli/variant_source.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/source_tree.h"
#include "lab/compare.h"
#include "lab/metric_text.h"
#include "lab/quantity.h"
#include "lab/registry.h"
#include "lab/target.h"
#include "machine/machine_id.h"

namespace fathom::cli {
namespace {

struct DiffFlags {
  std::vector<std::string> names;
  std::string artifacts = "artifacts", results, source_dir;
};

struct Side {
  const lab::ExperimentInfo* experiment;
  std::string variant;
};

Side side(const std::string& name) {
  const lab::Targets targets = chosen_targets({.names = {name}});
  if (targets.selections.size() != 1 || targets.selections.front().variants.size() != 1)
    throw UsageError(fmt::format("'{}' is not one variant; write it as ch07:transpose_cpu/tiled", name));
  return {lab::find_experiment(targets.selections.front().experiment),
          targets.selections.front().variants.front()};
}

// "A/x B/y", or "E x y", or "A/x" for the variant before x and x.
std::pair<Side, Side> sides(const std::vector<std::string>& names) {
  if (names.size() == 1) {
    const Side b         = side(names[0]);
    const auto& variants = b.experiment->variants;
    const auto at =
        std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return v.id == b.variant; });
    if (at == variants.begin())
      throw UsageError(fmt::format("'{}' is the first variant, with none before it; name two", names[0]));
    return {{b.experiment, std::prev(at)->id}, b};
  }
  if (names.size() == 3) return {side(names[0] + "/" + names[1]), side(names[0] + "/" + names[2])};
  return {side(names[0]), side(names[1])};
}

// diff writes to our standard output. Its exit code 1 only says that the files differ.
void print_diff(const std::string& a, const std::string& b) {
  std::fflush(stdout);
  const char* argv[] = {"diff", "-u", a.c_str(), b.c_str(), nullptr};
  pid_t pid          = 0;
  if (const int error = posix_spawnp(&pid, "diff", nullptr, nullptr, const_cast<char**>(argv), environ);
      error != 0)
    throw UsageError(fmt::format("cannot start diff: {}; install diffutils", std::strerror(error)));
  int status = 0;
  while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
  }
}

void print_sources(const DiffFlags& flags, const Side& a, const Side& b) {
  const auto root = flags.source_dir.empty() ? find_source_tree() : std::optional(flags.source_dir);
  if (!root) {
    fmt::print("The sources are not here: run it in the source tree, or name that with --source-dir.\n");
    return;
  }
  const auto file_a = variant_source(*root, *a.experiment, a.variant);
  const auto file_b = variant_source(*root, *b.experiment, b.variant);
  for (const auto* file : {&file_a, &file_b})
    if (!*file) {
      fmt::print("{}\n", file->error().message);
      return;
    }
  if (*file_a == *file_b)
    fmt::print("Both variants live in {}; they differ in how experiment.cpp declares them.\n", *file_a);
  else
    print_diff(*file_a, *file_b);
}

const lab::VariantRecord* find_variant(const lab::PointRecord& point, const std::string& id) {
  for (const lab::VariantRecord& variant : point.variants)
    if (variant.id == id) return &variant;
  return nullptr;
}

const lab::ExperimentRecord* find_experiment_in(const lab::RunRecord& run, const std::string& id) {
  for (const lab::ExperimentRecord& experiment : run.experiments)
    if (experiment.id == id && !experiment.points.empty()) return &experiment;
  return nullptr;
}

std::string ratio(const lab::VariantRecord& variant) {
  return variant.ratio ? lab::ratio_text(variant.ratio->median) : "";
}

// A point of one run that measured both sides.
struct Both {
  const lab::PointRecord* at;
  const lab::VariantRecord *a, *b;
};

std::vector<Both> measured(const lab::RunRecord& run, const Side& a, const Side& b) {
  std::vector<Both> found;
  const auto* in_a = find_experiment_in(run, a.experiment->id);
  const auto* in_b = find_experiment_in(run, b.experiment->id);
  if (!in_a || !in_b) return found;
  for (const lab::PointRecord& point_a : in_a->points)
    for (const lab::PointRecord& point_b : in_b->points) {
      const auto *va = find_variant(point_a, a.variant), *vb = find_variant(point_b, b.variant);
      if (point_a.at == point_b.at && va && vb && lab::quotient(va->time_ns, vb->time_ns))
        found.push_back({&point_a, va, vb});
    }
  return found;
}

Table times(const std::vector<Both>& points) {
  Table table{.columns = {{"at"},
                          {points.front().a->id, true},
                          {points.front().b->id, true},
                          {"A / B [at most]", true},
                          {"A to baseline", true},
                          {"B to baseline", true}},
              .rows    = {}};
  for (const auto& [at, a, b] : points) {
    const auto change = *lab::quotient(a->time_ns, b->time_ns);
    table.rows.push_back(
        {at->at.to_string(), lab::time_text(a->time_ns->median), lab::time_text(b->time_ns->median),
         lab::ratio_text(change.median) + " " + lab::ratio_interval_text(change.median, change.lo, change.hi),
         ratio(*a), ratio(*b)});
  }
  return table;
}

// What either side declares, reaches and counts: its place under the roofline, counters, metrics.
std::map<std::string, double> quantities(const lab::VariantRecord& variant) {
  std::map<std::string, double> out;
  for (const auto& [name, metric] : variant.metrics) out[name] = metric.value;
  if (variant.share_of_limit) out["share_of_limit_pct"] = 100 * *variant.share_of_limit;
  if (const auto bytes = static_cast<double>(variant.bytes_read + variant.bytes_written); bytes > 0) {
    out["declared_bytes"] = bytes;
    if (variant.flops > 0) out["declared_flops_per_byte"] = variant.flops / bytes;
  }
  return out;
}

Table quantities(const std::vector<Both>& points) {
  Table table{.columns = {{"at"},
                          {"quantity"},
                          {points.front().a->id, true},
                          {points.front().b->id, true},
                          {"B / A", true}},
              .rows    = {}};
  for (const auto& [at, a, b] : points) {
    const auto of_a = quantities(*a), of_b = quantities(*b);
    auto names = of_a;
    names.insert(of_b.begin(), of_b.end());
    for (const auto& [name, unused] : names) {
      const auto in_a = of_a.find(name), in_b = of_b.find(name);
      const auto text = [&](const auto& of, const auto& in) {
        return in == of.end() ? std::string(lab::kAbsent) : lab::metric_value_text(name, in->second);
      };
      const bool both = in_a != of_a.end() && in_b != of_b.end() && in_a->second > 0 && in_b->second > 0;
      table.rows.push_back({at->at.to_string(), lab::metric_name_text(name), text(of_a, in_a),
                            text(of_b, in_b),
                            both ? lab::ratio_text(in_b->second / in_a->second) : std::string()});
    }
  }
  return table;
}

// A sentence for each side, at the first point that both were measured at.
void print_limits(const lab::RunRecord& run, const std::vector<lab::ExperimentRecord>& records,
                  const std::vector<Both>& points, const Side& a, const Side& b) {
  std::map<std::string, std::string> sentences;
  for (const DiagnosedResult& result : diagnosed_results(run, records))
    sentences[result.id] = diagnose::sentence(result.diagnosis);
  std::string text;
  for (const Side* side : {&a, &b}) {
    const auto found =
        sentences.find(lab::result_id(side->experiment->id, side->variant, points.front().at->at));
    if (found != sentences.end())
      text += wrapped(found->second, text_columns(), fmt::format("{}: ", side->variant));
  }
  if (!text.empty()) fmt::print("\nWhat limits them (fathom diagnose)\n\n{}", text);
}

void print(const std::vector<Both>& points, const std::string& where) {
  fmt::print("\n{} (above 1, {} is faster)\n\n{}", where, points.front().b->id, to_text(times(points)));
  if (const Table table = quantities(points); !table.rows.empty())
    fmt::print("\nDeclared, counted and reached\n\n{}", to_text(table));
}

// The newest run that holds both, or else this machine's records.
void print_measured(const DiffFlags& flags, const Side& a, const Side& b) {
  const std::string results = results_folder(flags.results);
  const auto folders        = run_folders(flags.artifacts);
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    const auto run = lab::read_run(*folder);
    if (!run) continue;
    const auto points = measured(*run, a, b);
    if (points.empty()) continue;
    print(points, "Measured in " + *folder);
    return print_limits(*run, recorded_experiments(results, run->machine), points, a, b);
  }
  lab::RunRecord recorded;
  recorded.experiments = recorded_experiments(results, machine::machine_id());
  if (const auto points = measured(recorded, a, b); !points.empty()) {
    print(points, "Recorded under " + results);
    print_limits(recorded, {}, points, a, b);
  } else {
    fmt::print("\nNot measured yet: fathom run {}{}\n", a.experiment->id,
               a.experiment == b.experiment ? "" : " " + b.experiment->id);
  }
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<DiffFlags>();
  CLI::App& verb = *app.add_subcommand("diff", "Show how two variants differ, in source, time and counters");
  verb.add_option("names", flags->names,
                  "ch07:x/a ch07:x/b, or ch07:x a b; or ch07:x/b, beside the variant before it")
      ->required()
      ->expected(1, 3);
  add_artifacts_flag(verb, flags->artifacts);
  verb.add_option("--results-dir", flags->results, "Where records of machines are kept (default: results)");
  verb.add_option("--source-dir", flags->source_dir, "The source tree (default: the one around this folder)");
  verb.callback([flags, &exit_code] {
    const auto [a, b] = sides(flags->names);
    print_sources(*flags, a, b);
    print_measured(*flags, a, b);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
