#include "cli/diagnosed_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/run_folder.h"
#include "cli/target_flags.h"
#include "cli/usage_error.h"
#include "lab/expectation.h"
#include "lab/target.h"
#include "machine/gpu.h"
#include "machine/machine_id.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

// Records of one machine as a run of all their experiments.
struct Records {
  lab::RunRecord run;
  std::string folder;
};

std::vector<Records> records_by_machine(const std::string& results, const std::string& machine) {
  std::vector<Records> all;
  for (lab::Expectation& record : value_or_usage_error(lab::read_expectations(results, machine))) {
    lab::RunRecord& from = record.record;
    auto known           = std::find_if(all.begin(), all.end(),
                                        [&](const Records& records) { return records.run.machine == from.machine; });
    if (known == all.end()) {
      all.push_back({from, (fs::path(results) / from.machine).lexically_normal()});
    } else {
      known->run.experiments.insert(known->run.experiments.end(), from.experiments.begin(),
                                    from.experiments.end());
    }
  }
  return all;
}

bool is_selected(const lab::Targets& targets, const std::string& experiment, const std::string& variant,
                 const lab::Point& at) {
  const bool named =
      std::any_of(targets.selections.begin(), targets.selections.end(), [&](const auto& selection) {
        return selection.experiment == experiment &&
               (selection.variants.empty() || std::find(selection.variants.begin(), selection.variants.end(),
                                                        variant) != selection.variants.end());
      });
  return named && std::all_of(targets.axes.begin(), targets.axes.end(), [&](const lab::Axis& axis) {
           const lab::Value* value = at.find(axis.name);
           return value && std::find(axis.values.begin(), axis.values.end(), *value) != axis.values.end();
         });
}

std::vector<DiagnosedResult> selected_results(const std::vector<std::string>& names,
                                              const lab::RunRecord& run,
                                              const std::vector<lab::ExperimentRecord>& records) {
  lab::RunRecord part = run;
  if (!names.empty()) {
    const lab::Targets targets = chosen_targets({.names = names});
    for (lab::ExperimentRecord& experiment : part.experiments)
      for (lab::PointRecord& point : experiment.points)
        std::erase_if(point.variants, [&](const lab::VariantRecord& variant) {
          return !is_selected(targets, experiment.id, variant.id, point.at);
        });
  }
  return diagnosed_results(part, records);
}

// A run, one record, or a machine's folder of records.
Diagnosed from_path(const DiagnoseFrom& from, const std::string& path,
                    const std::vector<std::string>& names) {
  const fs::path folder = fs::path(path).lexically_normal();
  Diagnosed diagnosed{.machine = "", .from = folder.string(), .results = {}};
  if (fs::is_directory(folder) && !fs::exists(folder / "results.json")) {
    const fs::path machine = folder.has_filename() ? folder : folder.parent_path();
    const auto records     = records_by_machine(machine.parent_path().string(), machine.filename().string());
    if (records.empty())
      throw UsageError(
          fmt::format("{} holds neither a run nor records; name a run's folder, a results.json or "
                      "results/<machine>",
                      path));
    if (records.size() > 1)
      throw UsageError(fmt::format("{} holds records of {} and other machines; name one, as {}", path,
                                   records.front().run.machine,
                                   (machine / records.front().run.machine).string()));
    diagnosed.machine = records.front().run.machine;
    diagnosed.results = selected_results(names, records.front().run, {});
    return diagnosed;
  }
  const lab::RunRecord run = value_or_usage_error(lab::read_run(path));
  diagnosed.machine        = run.machine;
  diagnosed.results        = selected_results(names, run, recorded_experiments(from.results, run.machine));
  return diagnosed;
}

std::vector<std::string> own_machines() {
  std::vector<std::string> machines;
  if (machine::gpu()) machines.push_back(machine::gpu_machine_id());
  machines.push_back(machine::machine_id());
  return machines;
}

Diagnosed from_what_there_is(const DiagnoseFrom& from, const std::vector<std::string>& names) {
  if (from.machine.empty()) {
    const auto folders = run_folders(from.artifacts);
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
      const auto run = lab::read_run(*folder);
      if (!run) continue;
      auto results = selected_results(names, *run, recorded_experiments(from.results, run->machine));
      if (!results.empty()) return {run->machine, *folder, std::move(results)};
    }
  }
  std::vector<Records> all = records_by_machine(from.results, from.machine);
  // This machine's first, then the others by name.
  const std::vector<std::string> own = own_machines();
  std::stable_partition(all.begin(), all.end(), [&](const Records& records) {
    return std::find(own.begin(), own.end(), records.run.machine) != own.end();
  });
  for (const Records& records : all)
    if (auto results = selected_results(names, records.run, {}); !results.empty())
      return {records.run.machine, records.folder, std::move(results)};
  throw UsageError(
      fmt::format("{} was not measured: neither a run under {} nor a record under {}{} has it; "
                  "`fathom run` measures it",
                  names.empty() ? "anything" : fmt::format("{}", fmt::join(names, " ")), from.artifacts,
                  from.results, from.machine.empty() ? "" : " of " + from.machine));
}

}  // namespace

std::vector<DiagnosedResult> diagnosed_results(const lab::RunRecord& run,
                                               const std::vector<lab::ExperimentRecord>& records) {
  std::vector<DiagnosedResult> results;
  std::map<int, diagnose::MachineRates> rates;  // by threads
  for (const lab::ExperimentRecord& experiment : run.experiments)
    for (const lab::PointRecord& point : experiment.points)
      for (const lab::VariantRecord& variant : point.variants) {
        if (!variant.time_ns || variant.status != lab::Outcome::ok) continue;
        const bool on_gpu = experiment.backend == "cuda";
        const int threads = on_gpu ? 1 : variant.threads;
        if (!rates.contains(threads)) rates[threads] = diagnose::machine_rates(run, records, threads);
        results.push_back({.id        = lab::result_id(experiment.id, variant.id, point.at),
                           .target    = experiment.id + "/" + variant.id,
                           .limit     = point.limit,
                           .on_gpu    = on_gpu,
                           .time_ns   = variant.time_ns->median,
                           .share     = variant.share_of_limit,
                           .diagnosis = diagnose::diagnose(
                               diagnose::facts_of(variant, point.limit, on_gpu, rates.at(threads)), on_gpu)});
      }
  return results;
}

Diagnosed diagnosed_results(const DiagnoseFrom& from) {
  std::vector<std::string> names, paths;
  for (const std::string& name : from.names) (fs::exists(name) ? paths : names).push_back(name);
  if (paths.size() > 1)
    throw UsageError(fmt::format("{} and {} are two sources; name one run or record", paths[0], paths[1]));
  Diagnosed diagnosed =
      paths.empty() ? from_what_there_is(from, names) : from_path(from, paths.front(), names);
  if (diagnosed.results.empty())
    throw UsageError(fmt::format("{} has no time of {}", diagnosed.from,
                                 names.empty() ? "anything" : fmt::format("{}", fmt::join(names, " "))));
  return diagnosed;
}

std::vector<lab::ExperimentRecord> recorded_experiments(const std::string& results,
                                                        const std::string& machine) {
  std::vector<lab::ExperimentRecord> experiments;
  if (const auto records = lab::read_expectations(results, machine); records && !machine.empty())
    for (const lab::Expectation& record : *records)
      experiments.insert(experiments.end(), record.record.experiments.begin(),
                         record.record.experiments.end());
  return experiments;
}

Gained recorded_gains(const std::string& results, const std::string& machine) {
  Gained gains;
  const auto records = lab::read_expectations(results, "");
  if (!records) return gains;
  for (const lab::Expectation& record : *records)
    for (const lab::ExperimentRecord& experiment : record.record.experiments)
      for (const lab::PointRecord& point : experiment.points)
        for (const lab::VariantRecord& variant : point.variants) {
          if (!variant.ratio) continue;
          GainedOn& best      = gains[experiment.id + "/" + variant.id];
          const bool here     = record.record.machine == machine;
          const bool had_here = best.machine == machine;
          if (had_here && !here) continue;
          if ((here && !had_here) || variant.ratio->median > best.ratio)
            best = {variant.ratio->median, record.record.machine};
        }
  return gains;
}

}  // namespace fathom::cli
