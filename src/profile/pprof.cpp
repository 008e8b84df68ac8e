// The formats of profile/cpu_profiler.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profile/cpu_profiler.h"
#include "profile/cpu_sampling.h"

namespace fathom::profile {
namespace {

// Protocol Buffers' wire format: of each field its number and type, then the value
// (https://protobuf.dev/programming-guides/encoding). Fields of value 0 may be left out, and are.
class Message {
 public:
  void number(int field, uint64_t value) {
    if (value == 0) return;
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    text_ += value;
  }
  void message(int field, const Message& value) { bytes(field, value.text_); }
  void numbers(int field, const std::vector<uint64_t>& values) {  // packed
    Message packed;
    for (const uint64_t value : values) packed.varint(value);
    message(field, packed);
  }
  std::string take() { return std::move(text_); }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

// Numbers of strings, functions or addresses, in the order of their first use.
template <class T>
class Numbering {
 public:
  explicit Numbering(uint64_t first) : first_(first) {}
  uint64_t of(const T& one) {
    const auto [found, added] = numbers_.try_emplace(one, first_ + all_.size());
    if (added) all_.push_back(one);
    return found->second;
  }
  const std::vector<T>& all() const { return all_; }

 private:
  uint64_t first_;
  std::map<T, uint64_t> numbers_;
  std::vector<T> all_;
};

Message value_type(Numbering<std::string>& strings, const char* type, const char* unit) {
  Message message;
  message.number(1, strings.of(type));
  message.number(2, strings.of(unit));
  return message;
}

}  // namespace

// The numbers of fields are those of profile.proto.
std::string to_pprof(const StackProfile& profile) {
  Numbering<std::string> strings(0);
  Numbering<std::string> functions(1);
  Numbering<uintptr_t> locations(1);
  strings.of("");  // its first entry
  Message out;
  out.message(1, value_type(strings, "samples", "count"));
  out.message(1, value_type(strings, "cpu", "nanoseconds"));
  for (const StackCount& counted : profile.stacks) {
    Message sample, label;
    std::vector<uint64_t> stack;
    for (const uintptr_t address : counted.stack) stack.push_back(locations.of(address));
    sample.numbers(1, stack);
    sample.numbers(2, {static_cast<uint64_t>(counted.samples), static_cast<uint64_t>(counted.cpu_ns)});
    label.number(1, strings.of("thread"));
    label.number(2, strings.of(counted.thread));
    sample.message(3, label);
    out.message(2, sample);
  }
  for (const uintptr_t address : locations.all()) {
    Message location, line;
    location.number(1, locations.of(address));
    location.number(3, address);
    line.number(1, functions.of(function_at(address)));
    location.message(4, line);
    out.message(4, location);
  }
  for (const std::string& name : functions.all()) {
    Message function;
    function.number(1, functions.of(name));
    function.number(2, strings.of(name));
    function.number(3, strings.of(name));
    out.message(5, function);
  }
  const uint64_t comment = strings.of(
      fmt::format("{:.3g} s of CPU time, {:.3g} % of it in the signal handler; {} of {} samples dropped",
                  profile.cpu_s, profile.cpu_s > 0 ? 100 * profile.overhead_s / profile.cpu_s : 0,
                  profile.dropped, profile.samples + profile.dropped));
  const Message period_type = value_type(strings, "cpu", "nanoseconds");
  for (const std::string& text : strings.all()) out.bytes(6, text);
  out.number(
      9, static_cast<uint64_t>(
             std::chrono::duration_cast<std::chrono::nanoseconds>(profile.began.time_since_epoch()).count()));
  out.number(10, static_cast<uint64_t>(profile.lasted.count()));
  out.message(11, period_type);
  out.number(12, static_cast<uint64_t>(profile.period.count()));
  out.numbers(13, {comment});
  return out.take();
}

std::string to_folded(const StackProfile& profile) {
  std::map<std::string, int64_t> lines;
  std::map<uintptr_t, std::string> names;
  for (const StackCount& counted : profile.stacks) {
    std::string line = counted.thread;
    for (auto address = counted.stack.rbegin(); address != counted.stack.rend(); ++address) {
      auto [name, added] = names.try_emplace(*address);
      if (added) {
        name->second = function_at(*address);
        std::replace(name->second.begin(), name->second.end(), ';', ':');  // it separates functions
      }
      line += ';' + name->second;
    }
    lines[line] += counted.samples;
  }
  std::string text;
  for (const auto& [line, samples] : lines) text += fmt::format("{} {}\n", line, samples);
  return text;
}

}  // namespace fathom::profile
