#include "profile/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/atomic_file.h"
#include "core/expect.h"
#include "lab/record.h"

namespace fathom::profile {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) { return std::isfinite(value) ? nlohmann::json(value).dump() : "null"; }

// From integers: a double loses nanoseconds after a hundred days.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string value_text(const lab::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  return quoted(std::get<std::string>(value));
}

std::string arguments_text(const std::vector<Trace::Argument>& arguments) {
  std::string text;
  for (const auto& [name, value] : arguments)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", quoted(name), value_text(value));
  return text;
}

std::string metadata(const char* what, int process, int track, const std::string& arguments) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, process, track,
                     arguments);
}

// The ends of the open slices of a lane, outermost first.
struct Lane {
  std::vector<int64_t> open;

  bool take(int64_t start, int64_t end, Trace::Overlap overlap) {
    while (!open.empty() && open.back() <= start) open.pop_back();
    if (!open.empty() && (overlap == Trace::Overlap::apart || end > open.back())) return false;
    open.push_back(end);
    return true;
  }
};

}  // namespace

int Trace::process(std::string name) {
  processes_.push_back(std::move(name));
  return static_cast<int>(processes_.size()) - 1;
}

int Trace::track(int process, std::string name, Overlap overlap) {
  FATHOM_EXPECT(process >= 0 && process < static_cast<int>(processes_.size()),
                "a track belongs to a process");
  tracks_.push_back({process, std::move(name), overlap});
  return static_cast<int>(tracks_.size()) - 1;
}

int Trace::slice(int track, std::string name, int64_t start_ns, int64_t end_ns,
                 std::vector<Argument> arguments) {
  FATHOM_EXPECT(track >= 0 && track < static_cast<int>(tracks_.size()), "a slice lies on a track");
  slices_.push_back({track, std::move(name), start_ns, std::max(start_ns, end_ns), std::move(arguments)});
  return static_cast<int>(slices_.size()) - 1;
}

void Trace::flow(int from_slice, int to_slice, std::string name) {
  const int slices = static_cast<int>(slices_.size());
  FATHOM_EXPECT(from_slice >= 0 && from_slice < slices && to_slice >= 0 && to_slice < slices,
                "a flow joins two slices");
  flows_.push_back({from_slice, to_slice, std::move(name)});
}

void Trace::counter(int process, std::string name, int64_t at_ns, double value) {
  FATHOM_EXPECT(process >= 0 && process < static_cast<int>(processes_.size()),
                "a counter belongs to a process");
  samples_.push_back({process, std::move(name), at_ns, value});
}

std::vector<int> Trace::lanes() const {
  std::vector<int> order(slices_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  // Of slices that start together the longest is the outermost.
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    const Slice &x = slices_[a], &y = slices_[b];
    return std::pair(x.start_ns, y.end_ns) < std::pair(y.start_ns, x.end_ns);
  });
  std::vector<std::vector<Lane>> lanes_of(tracks_.size());
  std::vector<int> result(slices_.size());
  for (const int i : order) {
    const Slice& slice       = slices_[i];
    std::vector<Lane>& lanes = lanes_of[slice.track];
    size_t lane              = 0;
    while (lane < lanes.size() &&
           !lanes[lane].take(slice.start_ns, slice.end_ns, tracks_[slice.track].overlap))
      ++lane;
    if (lane == lanes.size()) lanes.emplace_back().take(slice.start_ns, slice.end_ns, Overlap::nested);
    result[i] = static_cast<int>(lane);
  }
  return result;
}

std::string Trace::json() const {
  int64_t base = std::numeric_limits<int64_t>::max();
  for (const Slice& slice : slices_) base = std::min(base, slice.start_ns);
  for (const Sample& sample : samples_) base = std::min(base, sample.at_ns);

  const std::vector<int> lane = lanes();
  std::vector<int> lanes_of(tracks_.size(), 1);
  for (size_t i = 0; i < slices_.size(); ++i)
    lanes_of[slices_[i].track] = std::max(lanes_of[slices_[i].track], lane[i] + 1);

  // Numbers from 1: viewers take 0 for the idle thread. A thread's number is unique over all processes.
  std::vector<std::string> events;
  for (size_t p = 0; p < processes_.size(); ++p) {
    events.push_back(
        metadata("process_name", static_cast<int>(p) + 1, 0, "\"name\":" + quoted(processes_[p])));
    events.push_back(
        metadata("process_sort_index", static_cast<int>(p) + 1, 0, fmt::format("\"sort_index\":{}", p)));
  }
  std::vector<int> first_thread(tracks_.size());
  int thread = 1;
  for (size_t t = 0; t < tracks_.size(); ++t) {
    first_thread[t] = thread;
    for (int l = 0; l < lanes_of[t]; ++l, ++thread) {
      const std::string name = l == 0 ? tracks_[t].name : fmt::format("{} ({})", tracks_[t].name, l + 1);
      const int process      = tracks_[t].process + 1;
      events.push_back(metadata("thread_name", process, thread, "\"name\":" + quoted(name)));
      events.push_back(
          metadata("thread_sort_index", process, thread, fmt::format("\"sort_index\":{}", thread)));
    }
  }
  const auto place = [&](int slice) {
    const int track = slices_[slice].track;
    return fmt::format(R"("pid":{},"tid":{},"ts":{})", tracks_[track].process + 1,
                       first_thread[track] + lane[slice], microseconds(slices_[slice].start_ns - base));
  };
  for (size_t i = 0; i < slices_.size(); ++i)
    events.push_back(fmt::format(R"({{"ph":"X","name":{},{},"dur":{},"args":{{{}}}}})",
                                 quoted(slices_[i].name), place(static_cast<int>(i)),
                                 microseconds(slices_[i].end_ns - slices_[i].start_ns),
                                 arguments_text(slices_[i].arguments)));
  for (size_t f = 0; f < flows_.size(); ++f)
    for (const bool start : {true, false})
      events.push_back(fmt::format(
          R"({{"ph":"{}","id":{},"name":{},"cat":"flow",{}{}}})", start ? "s" : "f", f + 1,
          quoted(flows_[f].name), place(start ? flows_[f].from : flows_[f].to), start ? "" : R"(,"bp":"e")"));
  for (const Sample& sample : samples_)
    events.push_back(fmt::format(R"({{"ph":"C","name":{},"pid":{},"ts":{},"args":{{"value":{}}}}})",
                                 quoted(sample.name), sample.process + 1, microseconds(sample.at_ns - base),
                                 number(sample.value)));

  return fmt::format("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(events, ",\n"));
}

void Trace::write(const std::string& path) const { write_file_atomically(path, json()); }

}  // namespace fathom::profile
