#include "profile/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/atomic_file.h"
#include "lab/json_text.h"
#include "lab/target.h"
#include "profile/api_summary.h"
#include "profile/cpu_profile.h"
#include "profile/kernel_table.h"
#include "profile/occupancy.h"
#include "profile/timeline.h"

namespace fathom::profile {
namespace {

// Joins the records of two runs of a call, which must launch the same kernels in the same order.
bool add_counters(std::vector<lab::KernelRecord>& kernels, const CounterRun& run) {
  if (run.kernels.size() != kernels.size()) return false;
  // Activity is sorted by start, counters by launch order, the order of correlation ids.
  std::vector<size_t> by_launch(kernels.size());
  for (size_t i = 0; i < by_launch.size(); ++i) by_launch[i] = i;
  std::stable_sort(by_launch.begin(), by_launch.end(),
                   [&](size_t a, size_t b) { return kernels[a].correlation < kernels[b].correlation; });
  for (size_t i = 0; i < by_launch.size(); ++i) kernels[by_launch[i]].counters = run.kernels[i];
  return true;
}

double nanoseconds(int64_t start, int64_t end) { return static_cast<double>(end - start); }

// Of the whole call: how long the GPU is busy.
std::map<std::string, lab::Metric> metrics_of(const Activity& activity) {
  double kernels = 0, copies = 0;
  for (const lab::KernelRecord& kernel : activity.kernels)
    kernels += nanoseconds(kernel.start_ns, kernel.end_ns);
  for (const CopyRecord& copy : activity.copies) copies += nanoseconds(copy.start_ns, copy.end_ns);
  std::map<std::string, lab::Metric> metrics;
  metrics["kernels"] = {static_cast<double>(activity.kernels.size()), "lower"};
  if (!activity.kernels.empty()) metrics["kernel_time_ns"] = {kernels, "lower"};
  if (!activity.copies.empty()) metrics["copy_time_ns"] = {copies, "lower"};
  return metrics;
}

// Of the longest of some kernels.
void add_longest(std::map<std::string, lab::Metric>& metrics, const KernelRow& longest,
                 const Activity& activity) {
  metrics["registers_per_thread"]   = {static_cast<double>(longest.registers), "lower"};
  metrics["shared_bytes_per_block"] = {static_cast<double>(longest.shared), "lower"};
  metrics["local_bytes_per_thread"] = {static_cast<double>(longest.local), "lower"};
  const auto blocks     = static_cast<double>(longest.grid[0] * longest.grid[1] * longest.grid[2]);
  const int64_t block   = longest.block[0] * longest.block[1] * longest.block[2];
  metrics["grid_size"]  = {blocks, "higher"};
  metrics["block_size"] = {static_cast<double>(block), "higher"};
  if (!longest.occupancy) return;
  metrics["theoretical_occupancy"] = {*longest.occupancy, "higher"};
  if (activity.gpus.empty()) return;
  const Gpu& gpu   = activity.gpus.begin()->second;
  const auto facts = gpu_facts(gpu.compute_capability);
  if (!facts || gpu.multiprocessors == 0) return;
  const int at_once = theoretical_occupancy(*facts, block, longest.registers, longest.shared).blocks;
  if (at_once > 0) metrics["waves_per_multiprocessor"] = {blocks / (at_once * gpu.multiprocessors), "lower"};
}

void add_counted(std::map<std::string, lab::Metric>& metrics, const std::vector<lab::KernelRecord>& kernels,
                 const lab::Cost& cost, bool whole_call) {
  std::vector<const lab::KernelRecord*> all;
  for (const lab::KernelRecord& kernel : kernels) all.push_back(&kernel);
  const auto counters = combined_counters(all);
  for (const auto& [name, value] : counters)
    metrics["counted_" + name] = {value, higher_is_better(name) ? "higher" : "lower"};
  const auto read = counters.find("dram_bytes_read"), written = counters.find("dram_bytes_written");
  // The declared cost is of the whole call.
  if (whole_call && read != counters.end() && written != counters.end() && cost.read + cost.written > 0)
    metrics["counted_over_declared_bytes"] = {
        (read->second + written->second) / static_cast<double>(cost.read + cost.written), "lower"};
}

// The folder of a variant's files, and their names at a point.
class Files {
 public:
  Files(const std::string& run, const lab::Profiled& what)
      : folder_(std::filesystem::path(run) / what.experiment / what.variant), at_(what.at) {}
  std::string path(std::string_view kind, std::string_view extension) const {
    return folder_ / profile_file_name(kind, at_, extension);
  }
  // <kind>_<point>.json and .md, with the id, and the notes below.
  void write(std::string_view kind, const std::string& id, nlohmann::json json, const std::string& markdown,
             const std::vector<std::string>& notes) const {
    json["id"]    = id;
    json["notes"] = notes;
    write_file_atomically(path(kind, "json"), lab::json_text(json));
    std::string page = fmt::format("# {}\n\n{}", id, markdown);
    for (const std::string& note : notes) page += fmt::format("\n{}\n", note);
    write_file_atomically(path(kind, "md"), page);
  }

 private:
  std::filesystem::path folder_;
  const lab::Point& at_;
};

lab::Profile profile_cpu(const ProfilerOptions& options, const lab::Profiled& what,
                         const std::function<void()>& call) {
  const CpuActivity activity = watch_cpu(call, options.cpu_s);
  const CpuProfile profile   = cpu_profile(activity);
  if (!options.folder.empty()) {
    const std::string id = lab::result_id(what.experiment, what.variant, what.at);
    const Files files(options.folder, what);
    cpu_timeline(activity, id).write(files.path("trace", "json"));
    files.write("functions", id, to_json(profile), to_markdown(profile), activity.notes);
  }
  return {.kernels = {}, .metrics = metrics_of(profile), .notes = activity.notes};
}

class EitherProfiler final : public lab::Profiler {
 public:
  EitherProfiler(ProfilerOptions options, ProfilerSources sources)
      : options_(std::move(options)), sources_(std::move(sources)) {}

  Result<lab::Profile> profile(const lab::Profiled& what, const std::function<void()>& call) override {
    if (what.backend == lab::Backend::cpu) return profile_cpu(options_, what, call);
    auto watched = sources_.activity(call);
    if (!watched) return watched.error();
    Activity& activity = *watched;
    lab::Profile profile;
    profile.notes   = activity.notes;
    profile.metrics = metrics_of(activity);
    std::string left_out;
    std::vector<lab::KernelRecord> kernels = options_.kernels.of(activity.kernels, left_out);
    if (!left_out.empty()) profile.notes.push_back(left_out);
    if (options_.counters && !kernels.empty() && needs_counters(options_.counted)) {
      count(activity, call, profile.notes);
      kernels = options_.kernels.of(activity.kernels, left_out);
    }
    const KernelTable table = kernel_table(kernels, left_out.empty() ? what.cost : lab::Cost{});
    if (!table.rows.empty()) add_longest(profile.metrics, table.rows.front(), activity);
    add_counted(profile.metrics, kernels, what.cost, left_out.empty());
    if (!options_.folder.empty()) write(what, activity, table, profile.notes);
    profile.kernels = std::move(kernels);
    return profile;
  }

 private:
  void count(Activity& activity, const std::function<void()>& call, std::vector<std::string>& notes) {
    auto counted = sources_.counters(options_.counted, activity.kernels.size(), call);
    if (!counted) {
      notes.push_back("no hardware counters: " + counted.error().message);
      return;
    }
    notes.insert(notes.end(), counted->notes.begin(), counted->notes.end());
    if (!add_counters(activity.kernels, *counted))
      notes.push_back(
          fmt::format("no hardware counters: the call launched {} kernels when it was traced and {} "
                      "when it was counted",
                      activity.kernels.size(), counted->kernels.size()));
  }

  void write(const lab::Profiled& what, const Activity& activity, const KernelTable& table,
             const std::vector<std::string>& notes) const {
    const std::string id = lab::result_id(what.experiment, what.variant, what.at);
    const Files files(options_.folder, what);
    const Trace trace = timeline(activity, id);
    trace.write(files.path("trace", "json"));
    if (const auto summary = api_summary(nlohmann::json::parse(trace.json())))
      files.write("api", id, to_json(*summary), to_markdown(*summary), summary->notes);
    files.write("kernels", id, to_json(table), to_markdown(table) + counters_markdown(table), notes);
  }

  ProfilerOptions options_;
  ProfilerSources sources_;
};

}  // namespace

std::unique_ptr<lab::Profiler> make_profiler(ProfilerOptions options, ProfilerSources sources) {
  return std::make_unique<EitherProfiler>(std::move(options), std::move(sources));
}

std::string profile_file_name(std::string_view kind, const lab::Point& at, std::string_view extension) {
  std::string point = at.to_string();
  // A parameter's value may contain characters that file names may not.
  for (char& c : point) {
    if (c == '&') c = ',';
    if (c == '/' || c == '\\' || c == ':' || static_cast<unsigned char>(c) < ' ') c = '_';
  }
  return fmt::format("{}{}{}.{}", kind, point.empty() ? "" : "_", point, extension);
}

}  // namespace fathom::profile
