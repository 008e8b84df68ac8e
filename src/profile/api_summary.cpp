#include "profile/api_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "lab/quantity.h"

namespace fathom::profile {
namespace {

using nlohmann::json;

enum class What { other, range, api, kernel, copy };

// Times in microseconds, as the format has them.
struct Slice {
  What what = What::other;
  std::string name;
  json process, thread;
  double start = 0, end = 0;
  std::optional<int64_t> correlation = {};
};

using Track = std::pair<json, json>;  // process and thread

struct Read {
  std::map<json, std::string> process_names;
  std::map<Track, std::string> thread_names;
  std::vector<Slice> slices;
  std::map<json, std::pair<const Slice*, const Slice*>> flows;  // from and to
};

constexpr std::string_view kRangesOf = "ranges of ", kCall = "call", kHost = "host";

bool is_cuda_call(std::string_view name) {
  return name.starts_with("cuda") ||
         (name.starts_with("cu") && name.size() > 2 && name[2] >= 'A' && name[2] <= 'Z');
}

// By category where there is one (PyTorch's profiler), or else by the tracks of profile/timeline.cpp.
What what_of(const json& event, const std::string& process, const std::string& thread) {
  const std::string category = event.value("cat", "");
  if (category == "kernel") return What::kernel;
  if (category == "gpu_memcpy" || category == "gpu_memset") return What::copy;
  if (category == "cuda_runtime" || category == "cuda_driver") return What::api;
  if (category == "user_annotation" || category == "nvtx") return What::range;
  if (!category.empty()) return What::other;
  const json arguments = event.value("args", json::object());
  if (process == kHost) {
    if (thread == kCall || thread.starts_with(kRangesOf)) return What::range;
    return is_cuda_call(event.value("name", "")) ? What::api : What::other;
  }
  if (arguments.contains("grid")) return What::kernel;
  return arguments.contains("bytes") ? What::copy : What::other;
}

// "ranges of thread 42" and its further lanes hold the ranges of "thread 42"; "call" holds every thread's.
bool range_is_of(const Read& read, const Slice& range, const Slice& call) {
  if (range.process != call.process) return false;
  if (range.thread == call.thread) return true;
  const auto name_of = [&](const Slice& slice) {
    const auto found = read.thread_names.find({slice.process, slice.thread});
    return found == read.thread_names.end() ? std::string() : found->second;
  };
  const std::string of_range = name_of(range), of_call = name_of(call);
  if (of_range == kCall) return true;
  return of_range.starts_with(kRangesOf) && of_range.substr(kRangesOf.size()).starts_with(of_call) &&
         !of_call.empty();
}

// The ranges around a call, outermost first.
std::string range_of(const Read& read, const std::vector<const Slice*>& ranges, const Slice& call) {
  std::string path;
  std::string last;
  for (const Slice* range : ranges) {
    if (range->start > call.start || range->end < call.start || !range_is_of(read, *range, call)) continue;
    // The title of the call is of interest where nothing is inside it.
    const auto track = read.thread_names.find({range->process, range->thread});
    if (track != read.thread_names.end() && track->second == kCall) {
      last = range->name;
      continue;
    }
    path += (path.empty() ? "" : " > ") + range->name;
  }
  return path.empty() ? last : path;
}

void read_metadata(const json& event, Read& read) {
  const json arguments = event.value("args", json::object());
  const json process = event.value("pid", json()), thread = event.value("tid", json());
  const std::string name = arguments.value("name", "");
  if (event.value("name", "") == "process_name") read.process_names[process] = name;
  if (event.value("name", "") == "thread_name") read.thread_names[{process, thread}] = name;
}

void read_slice(const json& event, Read& read) {
  Slice slice{.name = event.at("name"), .process = event.at("pid"), .thread = event.at("tid")};
  slice.start            = event.at("ts");
  slice.end              = slice.start + event.value("dur", 0.0);
  const auto process     = read.process_names.find(slice.process);
  const auto thread      = read.thread_names.find({slice.process, slice.thread});
  slice.what             = what_of(event, process == read.process_names.end() ? "" : process->second,
                       thread == read.thread_names.end() ? "" : thread->second);
  const json arguments   = event.value("args", json::object());
  const auto correlation = arguments.find("correlation");
  if (correlation != arguments.end() && correlation->is_number_integer())
    slice.correlation = correlation->get<int64_t>();
  read.slices.push_back(std::move(slice));
}

// A flow begins and ends at the start of a slice of its track.
using Starts = std::multimap<std::tuple<json, json, double>, const Slice*>;

const Slice* slice_at(const Starts& starts, const json& event, std::initializer_list<What> kinds) {
  const auto [first, last] =
      starts.equal_range({event.at("pid"), event.at("tid"), event.at("ts").get<double>()});
  const auto found = std::find_if(first, last, [&](const auto& start) {
    return std::find(kinds.begin(), kinds.end(), start.second->what) != kinds.end();
  });
  return found == last ? nullptr : found->second;
}

// What the host did to start a kernel or a copy.
std::map<const Slice*, const Slice*> launches_of(const Read& read) {
  std::map<const Slice*, const Slice*> launches;
  for (const auto& [id, flow] : read.flows)
    if (flow.first && flow.second) launches[flow.second] = flow.first;
  std::map<int64_t, const Slice*> calls;
  for (const Slice& slice : read.slices)
    if (slice.what == What::api && slice.correlation) calls.emplace(*slice.correlation, &slice);
  for (const Slice& slice : read.slices)
    if (slice.correlation && (slice.what == What::kernel || slice.what == What::copy))
      if (const auto call = calls.find(*slice.correlation); call != calls.end())
        launches.emplace(&slice, call->second);
  return launches;
}

class Rows {
 public:
  void add(const std::string& range, const Slice& slice, std::string_view kind) {
    auto [row, is_new] = rows_.try_emplace({range, slice.name});
    row->second.kind   = kind;
    row->second.times.push_back(1000 * (slice.end - slice.start));
    if (is_new) order_.try_emplace(range, order_.size());
  }
  std::vector<SummaryRow> take() {
    std::vector<SummaryRow> all;
    double total = 0;
    for (auto& [key, row] : rows_) {
      std::vector<double>& times = row.times;
      std::sort(times.begin(), times.end());
      SummaryRow summed{.range     = key.first,
                        .name      = key.second,
                        .kind      = row.kind,
                        .calls     = static_cast<int64_t>(times.size()),
                        .median_ns = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2,
                        .min_ns    = times.front(),
                        .max_ns    = times.back()};
      for (const double time : times) summed.total_ns += time;
      total += summed.total_ns;
      all.push_back(std::move(summed));
    }
    for (SummaryRow& row : all) row.share = total > 0 ? row.total_ns / total : 0;
    std::stable_sort(all.begin(), all.end(), [&](const SummaryRow& a, const SummaryRow& b) {
      return std::pair(order_.at(a.range), -a.total_ns) < std::pair(order_.at(b.range), -b.total_ns);
    });
    return all;
  }

 private:
  struct Row {
    std::string kind;
    std::vector<double> times;
  };
  std::map<std::pair<std::string, std::string>, Row> rows_;
  std::map<std::string, size_t> order_;
};

ApiSummary summed(const Read& read) {
  std::vector<const Slice*> ranges, in_order;
  for (const Slice& slice : read.slices) (slice.what == What::range ? ranges : in_order).push_back(&slice);
  // Of ranges that start together the longer one is outside.
  std::stable_sort(ranges.begin(), ranges.end(), [](const Slice* a, const Slice* b) {
    return std::pair(a->start, -a->end) < std::pair(b->start, -b->end);
  });
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Slice* a, const Slice* b) { return a->start < b->start; });
  const auto launches = launches_of(read);
  Rows api, kernels, copies;
  int64_t of_no_call = 0;
  for (const Slice* slice : in_order) {
    if (slice->what == What::api) api.add(range_of(read, ranges, *slice), *slice, kind_of_call(slice->name));
    if (slice->what != What::kernel && slice->what != What::copy) continue;
    const auto launch = launches.find(slice);
    of_no_call += launch == launches.end();
    (slice->what == What::kernel ? kernels : copies)
        .add(launch == launches.end() ? "" : range_of(read, ranges, *launch->second), *slice, "");
  }
  ApiSummary summary{.api = api.take(), .kernels = kernels.take(), .copies = copies.take()};
  if (of_no_call > 0)
    summary.notes.push_back(fmt::format(
        "{} kernels and copies have no launch in the trace, so they are in no range", of_no_call));
  return summary;
}

double set_up_share(const std::vector<SummaryRow>& api) {
  double share = 0;
  for (const SummaryRow& row : api) share += is_set_up(row.kind) ? row.share : 0;
  return share;
}

json rows_json(const std::vector<SummaryRow>& rows) {
  json all = json::array();
  for (const SummaryRow& row : rows)
    all.push_back({{"range", row.range},
                   {"name", row.name},
                   {"kind", row.kind},
                   {"calls", row.calls},
                   {"total_ns", row.total_ns},
                   {"median_ns", row.median_ns},
                   {"min_ns", row.min_ns},
                   {"max_ns", row.max_ns},
                   {"share", row.share}});
  return all;
}

}  // namespace

std::string_view kind_of_call(std::string_view call) {
  const auto holds = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return call.find(word) != call.npos; });
  };
  if (holds({"ModuleLoad", "LibraryLoad", "ModuleGet", "LibraryGet", "KernelGetFunction", "LinkComplete"}))
    return "module load";
  if (holds({"GraphInstantiate", "GraphExecUpdate", "GraphCreate", "GraphUpload",
             "GraphExecKernelNodeSetParams", "EndCapture", "BeginCapture"}))
    return "graph build";
  if (holds({"Launch"})) return "launch";
  if (holds({"Malloc", "MemAlloc", "HostAlloc", "HostRegister", "Free", "MemCreate", "MemMap"}))
    return "allocation";
  if (holds({"Synchronize", "WaitEvent", "EventQuery"})) return "synchronisation";
  if (holds({"Memcpy", "Memset"})) return "copy";
  return "other";
}

bool is_set_up(std::string_view kind) {
  return kind == "module load" || kind == "graph build" || kind == "allocation";
}

Result<ApiSummary> api_summary(const json& trace) {
  const json* events = &trace;
  if (trace.is_object()) {
    const auto found = trace.find("traceEvents");
    if (found == trace.end()) return Error{"no traceEvents: not a trace in Chrome's format"};
    events = &*found;
  }
  if (!events->is_array()) return Error{"its events are no array: not a trace in Chrome's format"};
  Read read;
  int64_t begins = 0;
  try {
    // Names first: they may come after the slices.
    for (const json& event : *events)
      if (event.value("ph", "") == "M") read_metadata(event, read);
    for (const json& event : *events) {
      const std::string phase = event.value("ph", "");
      if (phase == "X") read_slice(event, read);
      begins += phase == "B";
    }
    Starts starts;
    for (const Slice& slice : read.slices)
      starts.emplace(std::tuple(slice.process, slice.thread, slice.start), &slice);
    for (const json& event : *events) {
      const std::string phase = event.value("ph", "");
      if (phase == "s") read.flows[event.at("id")].first = slice_at(starts, event, {What::api});
      if (phase == "f")
        read.flows[event.at("id")].second = slice_at(starts, event, {What::kernel, What::copy});
    }
  } catch (const json::exception& error) {
    return Error{fmt::format("an event is not as Chrome's format has it: {}", error.what())};
  }
  ApiSummary summary = summed(read);
  if (begins > 0)
    summary.notes.push_back(
        fmt::format("{} pairs of begin and end are not read, complete events (X) alone", begins));
  if (summary.api.empty()) summary.notes.push_back("the trace has no API calls of CUDA");
  return summary;
}

Result<ApiSummary> read_api_summary(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{fmt::format("cannot read {}: {}; name a trace_*.json", path, std::strerror(errno))};
  const json trace = json::parse(in, nullptr, false);
  if (trace.is_discarded()) return Error{fmt::format("{} is not JSON; name a trace_*.json", path)};
  auto summary = api_summary(trace);
  if (!summary) return Error{fmt::format("{}: {}", path, summary.error().message)};
  return summary;
}

std::vector<std::vector<std::string>> cells(const std::vector<SummaryRow>& rows, std::string_view what) {
  std::set<std::string> ranges, kinds;
  for (const SummaryRow& row : rows) {
    ranges.insert(row.range);
    kinds.insert(row.kind);
  }
  const bool by_range = ranges.size() > 1, by_kind = kinds.size() > 1;
  std::vector<std::vector<std::string>> all = {{}};
  if (by_range) all[0].push_back("range");
  all[0].insert(all[0].end(), {std::string(what), "share", "total", "calls", "median", "min", "max"});
  if (by_kind) all[0].push_back("kind");
  for (const SummaryRow& row : rows) {
    std::vector<std::string>& line = all.emplace_back();
    if (by_range) line.push_back(row.range.empty() ? std::string(lab::kAbsent) : row.range);
    line.insert(line.end(), {row.name, lab::share_text(row.share), lab::time_text(row.total_ns),
                             lab::count_text(row.calls), lab::time_text(row.median_ns),
                             lab::time_text(row.min_ns), lab::time_text(row.max_ns)});
    if (by_kind) line.push_back(row.kind);
  }
  return all;
}

std::string set_up_text(const ApiSummary& summary) {
  const double share = set_up_share(summary.api);
  if (share == 0) return "";
  return fmt::format(
      "{} of the time in API calls is loading of modules, building of graphs and allocation: work of a "
      "start, which a "
      "step that is repeated should not have.",
      lab::share_text(share));
}

std::string to_markdown(const ApiSummary& summary) {
  std::string text;
  const auto table = [&](const std::vector<SummaryRow>& rows, std::string_view what) {
    if (rows.empty()) return;
    const auto lines = cells(rows, what);
    text += text.empty() ? "" : "\n";
    for (size_t l = 0; l < lines.size(); ++l) {
      std::string line;
      for (const std::string& cell : lines[l])
        line += l > 0 && &cell == &lines[l].front() ? "| `" + cell + "` " : "| " + cell + " ";
      text += line + "|\n";
      if (l > 0) continue;
      for (const std::string& cell : lines[0]) {
        const bool words = cell == what || cell == "range" || cell == "kind";
        text += words ? "|---" : "|---:";
      }
      text += "|\n";
    }
  };
  table(summary.api, "API call");
  table(summary.kernels, "kernel");
  table(summary.copies, "copy");
  if (const std::string share = set_up_text(summary); !share.empty()) text += "\n" + share + "\n";
  return text;
}

json to_json(const ApiSummary& summary) {
  return {{"schema", "fathom.api_summary/1"},          {"api", rows_json(summary.api)},
          {"kernels", rows_json(summary.kernels)},     {"copies", rows_json(summary.copies)},
          {"set_up_share", set_up_share(summary.api)}, {"notes", summary.notes}};
}

}  // namespace fathom::profile
