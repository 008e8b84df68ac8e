#include "profile/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace fathom::profile {
namespace {

std::string full_extent_text(const std::array<int64_t, 3>& extent) {
  return fmt::format("{}x{}x{}", extent[0], extent[1], extent[2]);
}

std::vector<Trace::Argument> arguments_of(const lab::KernelRecord& kernel) {
  std::vector<Trace::Argument> arguments{{"grid", full_extent_text(kernel.grid)},
                                         {"block", full_extent_text(kernel.block)},
                                         {"registers per thread", int64_t{kernel.registers}},
                                         {"static shared memory, bytes", kernel.static_shared},
                                         {"dynamic shared memory, bytes", kernel.dynamic_shared}};
  if (kernel.cluster != std::array<int64_t, 3>{1, 1, 1})
    arguments.push_back({"cluster", full_extent_text(kernel.cluster)});
  if (kernel.local > 0) arguments.push_back({"local memory per thread, bytes", kernel.local});
  if (kernel.occupancy) {
    arguments.push_back({"theoretical occupancy", *kernel.occupancy});
    arguments.push_back({"limited by", kernel.limiter});
  }
  for (const auto& [name, value] : kernel.counters) arguments.push_back({name, value});
  return arguments;
}

// The tracks of the GPUs, made at their first use.
class Streams {
 public:
  Streams(Trace& trace, const Activity& activity) : trace_(trace) {
    std::set<std::pair<int, uint32_t>> used;
    for (const lab::KernelRecord& kernel : activity.kernels) used.insert({kernel.device, kernel.stream});
    for (const CopyRecord& copy : activity.copies) used.insert({copy.device, copy.stream});
    int process = -1, device = -1;
    for (const auto& stream : used) {
      if (process == -1 || stream.first != device) {
        device         = stream.first;
        const auto gpu = activity.gpus.find(device);
        process        = trace.process(gpu == activity.gpus.end() || gpu->second.name.empty()
                                           ? fmt::format("GPU {}", device)
                                           : fmt::format("GPU {}: {}", device, gpu->second.name));
      }
      tracks_[stream] = trace.track(process, fmt::format("stream {}", stream.second), Trace::Overlap::apart);
    }
  }
  int slice(int device, uint32_t stream, std::string name, int64_t start_ns, int64_t end_ns,
            std::vector<Trace::Argument> arguments) {
    return trace_.slice(tracks_.at({device, stream}), std::move(name), start_ns, end_ns,
                        std::move(arguments));
  }

 private:
  Trace& trace_;
  std::map<std::pair<int, uint32_t>, int> tracks_;
};

}  // namespace

std::vector<HostCall> without_inner_driver_calls(const std::vector<HostCall>& calls,
                                                 const std::set<uint32_t>& launched) {
  std::set<uint32_t> of_runtime;
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> runtime_calls;  // by thread
  for (const HostCall& call : calls) {
    if (call.driver) continue;
    of_runtime.insert(call.correlation);
    runtime_calls[call.thread].push_back({call.start_ns, call.end_ns});
  }
  for (auto& [thread, intervals] : runtime_calls) std::sort(intervals.begin(), intervals.end());
  const auto inside_one = [&](const HostCall& call) {
    const auto& intervals = runtime_calls[call.thread];
    // Calls of one thread and API do not overlap: only the last one that started earlier can enclose this
    // one.
    auto after = std::upper_bound(intervals.begin(), intervals.end(), std::pair(call.start_ns, INT64_MAX));
    return after != intervals.begin() && call.end_ns <= (--after)->second;
  };
  std::vector<HostCall> outer;
  for (const HostCall& call : calls) {
    const bool launches = launched.contains(call.correlation) && !of_runtime.contains(call.correlation);
    if (!call.driver || launches || !inside_one(call)) outer.push_back(call);
  }
  return outer;
}

Trace timeline(const Activity& activity, const std::string& title) {
  std::set<uint32_t> launched;
  for (const lab::KernelRecord& kernel : activity.kernels) launched.insert(kernel.correlation);
  for (const CopyRecord& copy : activity.copies) launched.insert(copy.correlation);

  Trace trace;
  const int host = trace.process("host");
  trace.slice(trace.track(host, "call", Trace::Overlap::nested), title, activity.start_ns, activity.end_ns);
  std::map<uint32_t, int> of_ranges, threads;
  for (const HostRange& range : activity.ranges) {
    auto track = of_ranges.find(range.thread);
    if (track == of_ranges.end())
      track = of_ranges
                  .emplace(range.thread, trace.track(host, fmt::format("ranges of thread {}", range.thread),
                                                     Trace::Overlap::nested))
                  .first;
    trace.slice(track->second, range.name, range.start_ns, range.end_ns);
  }
  std::map<uint32_t, int> launches;  // correlation to slice
  for (const HostCall& call : without_inner_driver_calls(activity.host_calls, launched)) {
    auto thread = threads.find(call.thread);
    if (thread == threads.end())
      thread = threads
                   .emplace(call.thread,
                            trace.track(host, fmt::format("thread {}", call.thread), Trace::Overlap::nested))
                   .first;
    const int slice = trace.slice(thread->second, call.name, call.start_ns, call.end_ns);
    launches.emplace(call.correlation, slice);  // the outermost, which comes first
  }

  Streams streams(trace, activity);
  const auto arrow = [&](uint32_t correlation, int slice) {
    if (const auto launch = launches.find(correlation); launch != launches.end())
      trace.flow(launch->second, slice, "launch");
  };
  for (const lab::KernelRecord& kernel : activity.kernels)
    if (kernel.end_ns > 0)  // else its times are unknown
      arrow(kernel.correlation, streams.slice(kernel.device, kernel.stream, kernel.name, kernel.start_ns,
                                              kernel.end_ns, arguments_of(kernel)));
  for (const CopyRecord& copy : activity.copies)
    if (copy.end_ns > 0)
      arrow(copy.correlation, streams.slice(copy.device, copy.stream, copy.name, copy.start_ns, copy.end_ns,
                                            {{"bytes", copy.bytes}}));
  return trace;
}

}  // namespace fathom::profile
