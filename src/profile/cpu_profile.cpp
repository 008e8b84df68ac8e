#include "profile/cpu_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "lab/quantity.h"

namespace fathom::profile {
namespace {

// Samples of one thread that are further apart are of two slices: it did not run in between.
constexpr int64_t kFarApartNs    = 12'000'000;
constexpr size_t kMostCallsDrawn = 2000;

// Names by address, each looked up once.
class Names {
 public:
  const std::string& at(uintptr_t address) {
    auto [found, added] = names_.try_emplace(address);
    if (added) found->second = function_at(address);
    return found->second;
  }

 private:
  std::unordered_map<uintptr_t, std::string> names_;
};

}  // namespace

CpuProfile cpu_profile(const CpuActivity& activity) {
  CpuProfile profile{.calls = std::ssize(activity.calls), .samples = std::ssize(activity.samples)};
  if (profile.calls == 0) return profile;
  const auto calls  = static_cast<double>(profile.calls);
  const auto a_call = [&](int64_t all) { return static_cast<double>(all) / calls; };
  for (const CpuCall& call : activity.calls) profile.call_ns += a_call(call.end_ns - call.start_ns);
  profile.cpu_ns        = activity.cpu_s * 1e9 / calls;
  profile.minor_faults  = a_call(activity.minor_faults);
  profile.major_faults  = a_call(activity.major_faults);
  profile.waits         = a_call(activity.waits);
  profile.interruptions = a_call(activity.interruptions);
  for (const auto& [name, count] : activity.counters) profile.counters[name] = count / calls;

  Names names;
  std::map<std::string, std::pair<int64_t, std::set<int>>> functions;
  for (const CpuSample& sample : activity.samples) {
    auto& [count, threads] = functions[names.at(sample.address)];
    ++count;
    threads.insert(sample.thread);
  }
  for (const auto& [name, seen] : functions)
    profile.rows.push_back({.name    = name,
                            .samples = seen.first,
                            .share   = static_cast<double>(seen.first) / static_cast<double>(profile.samples),
                            .threads = static_cast<int>(seen.second.size())});
  std::stable_sort(profile.rows.begin(), profile.rows.end(),
                   [](const FunctionRow& a, const FunctionRow& b) { return a.samples > b.samples; });
  return profile;
}

std::string to_markdown(const CpuProfile& profile) {
  std::string text = fmt::format(
      "{} calls of {}, {} of CPU time each; a call has {} minor and {} major page faults, waits {} times and "
      "is "
      "interrupted {} times.\n\n| function | samples | share | threads |\n|---|---:|---:|---:|\n",
      profile.calls, lab::time_text(profile.call_ns), lab::time_text(profile.cpu_ns),
      lab::digits_text(profile.minor_faults), lab::digits_text(profile.major_faults),
      lab::digits_text(profile.waits), lab::digits_text(profile.interruptions));
  for (const FunctionRow& row : profile.rows)
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.name, row.samples, lab::share_text(row.share),
                        row.threads);
  return text;
}

nlohmann::json to_json(const CpuProfile& profile) {
  auto functions = nlohmann::json::array();
  for (const FunctionRow& row : profile.rows)
    functions.push_back(
        {{"name", row.name}, {"samples", row.samples}, {"share", row.share}, {"threads", row.threads}});
  return {{"schema", "fathom.cpu_profile/1"},
          {"calls", profile.calls},
          {"samples", profile.samples},
          {"call_ns", profile.call_ns},
          {"cpu_ns", profile.cpu_ns},
          {"minor_faults", profile.minor_faults},
          {"major_faults", profile.major_faults},
          {"waits", profile.waits},
          {"interruptions", profile.interruptions},
          {"counters", profile.counters},
          {"functions", std::move(functions)}};
}

std::map<std::string, lab::Metric> metrics_of(const CpuProfile& profile) {
  std::map<std::string, lab::Metric> metrics = {
      {"cpu_time_ns", {profile.cpu_ns, "lower"}},
      {"cpus_busy", {profile.call_ns > 0 ? profile.cpu_ns / profile.call_ns : 0, "higher"}},
      {"minor_faults", {profile.minor_faults, "lower"}},
      {"major_faults", {profile.major_faults, "lower"}},
      {"waits", {profile.waits, "lower"}}};
  for (const auto& [name, count] : profile.counters) metrics["counted_" + name] = {count, "lower"};
  return metrics;
}

Trace cpu_timeline(const CpuActivity& activity, const std::string& title) {
  Trace trace;
  const int host = trace.process("CPU");
  const int call = trace.track(host, "call", Trace::Overlap::nested);
  for (size_t c = 0; c < std::min(activity.calls.size(), kMostCallsDrawn); ++c)
    trace.slice(call, title, activity.calls[c].start_ns, activity.calls[c].end_ns);

  struct Open {
    std::string name;
    int64_t start_ns, last_ns, samples;
  };
  Names names;
  std::map<int, std::vector<Open>> threads;
  for (const CpuSample& sample : activity.samples) {
    std::vector<Open>& slices = threads[sample.thread];
    const std::string& name   = names.at(sample.address);
    const bool follows        = !slices.empty() && sample.at_ns - slices.back().last_ns < kFarApartNs;
    if (follows) slices.back().last_ns = sample.at_ns;  // up to the next sample the thread was there
    if (follows && slices.back().name == name)
      ++slices.back().samples;
    else
      slices.push_back({name, sample.at_ns, sample.at_ns, 1});
  }
  for (const auto& [thread, slices] : threads) {
    const int track = trace.track(host, fmt::format("thread {}", thread), Trace::Overlap::nested);
    for (const Open& slice : slices)
      trace.slice(track, slice.name, slice.start_ns, slice.last_ns, {{"samples", slice.samples}});
  }
  return trace;
}

}  // namespace fathom::profile
