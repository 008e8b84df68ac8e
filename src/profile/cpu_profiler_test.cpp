// Profiles of threads of this program, whose work is known; and the formats, read back.
#include "profile/cpu_profiler.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "profile/cpu_sampling.h"

namespace fathom::profile {
namespace {

using namespace std::chrono_literals;

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

[[gnu::noinline]] double spin_in_the_innermost(double seconds) {
  double sum = 0;
  for (const double until = thread_cpu_s() + seconds; thread_cpu_s() < until;)
    for (int i = 1; i < 2000; ++i) sum += 1.0 / (sum + i);
  return sum;
}
[[gnu::noinline]] double caller_of_the_spin(double seconds) {
  const double sum = spin_in_the_innermost(seconds);
  return sum > 1e30 ? throw std::runtime_error("the sum is small") : sum;  // no tail call
}

// Of as long as `work` takes, and at least some visits of the profiler's thread.
StackProfile profile_while(CpuProfiler& profiler, const std::function<void()>& work) {
  std::promise<StackProfile> done;
  EXPECT_TRUE(profiler.profile(1h, [&](const StackProfile& profile) { done.set_value(profile); }));
  work();
  std::this_thread::sleep_for(250ms);
  profiler.end();
  return done.get_future().get();
}

// Samples whose stack has a function of that name at that depth; -1: anywhere.
int64_t samples_in(const StackProfile& profile, const std::string& name, int depth = -1) {
  int64_t samples = 0;
  for (const StackCount& counted : profile.stacks)
    for (size_t d = 0; d < counted.stack.size(); ++d)
      if ((depth < 0 || d == static_cast<size_t>(depth)) &&
          function_at(counted.stack[d]).find(name) != std::string::npos) {
        samples += counted.samples;
        break;
      }
  return samples;
}

TEST(CpuProfiler, FindsWhoCalledWhatAndInWhichThread) {
  CpuProfiler profiler;
  const StackProfile profile = profile_while(profiler, [] {
    std::thread busy([] {
      pthread_setname_np(pthread_self(), "busy-thread");
      (void)caller_of_the_spin(0.6);
    });
    busy.join();
  });
  // 58 samples in 0.6 s of CPU time, or half as many where they cost too much.
  EXPECT_GT(profile.samples, 15);
  EXPECT_LT(profile.samples, 200);
  EXPECT_GT(samples_in(profile, "spin_in_the_innermost"), profile.samples / 2);
  EXPECT_GT(samples_in(profile, "caller_of_the_spin"), profile.samples / 2);
  EXPECT_EQ(samples_in(profile, "caller_of_the_spin", 0), 0) << "it is no leaf";
  int64_t of_thread = 0, in_all = 0;
  for (const StackCount& counted : profile.stacks) {
    in_all += counted.samples;
    EXPECT_GE(counted.cpu_ns, counted.samples * 10'300'000);
    EXPECT_EQ(counted.cpu_ns % 10'300'000, 0);
    if (counted.thread == "busy-thread") of_thread += counted.samples;
  }
  EXPECT_EQ(in_all, profile.samples);
  EXPECT_GT(of_thread, profile.samples / 2);
  EXPECT_TRUE(std::is_sorted(profile.stacks.begin(), profile.stacks.end(),
                             [](const auto& a, const auto& b) { return a.cpu_ns > b.cpu_ns; }));
  EXPECT_GT(profile.cpu_s, 0.5);
  EXPECT_GT(profile.overhead_s, 0);
  EXPECT_LT(profile.overhead_s, 0.1 * profile.cpu_s);
}

TEST(CpuProfiler, WindowsOverlapAndEachHasItsOwnTime) {
  CpuProfiler profiler;
  std::promise<StackProfile> first, idle, last;
  (void)caller_of_the_spin(0.2);  // nobody wants samples yet
  const auto keep = [](std::promise<StackProfile>& in) {
    return [&in](const StackProfile& profile) { in.set_value(profile); };
  };
  EXPECT_TRUE(profiler.profile(1s, keep(first)));
  (void)caller_of_the_spin(0.2);
  const StackProfile of_first = first.get_future().get();
  EXPECT_GT(of_first.samples, 5);
  EXPECT_GE(of_first.lasted, 1s);
  EXPECT_LT(of_first.cpu_s, 60);
  // None runs, so none are taken, and those of the last moments are nobody's.
  (void)caller_of_the_spin(0.2);
  EXPECT_TRUE(profiler.profile(200ms, keep(idle)));
  EXPECT_LT(idle.get_future().get().samples, 4);
  // What was computed before a window begins is of the one that ran then.
  std::promise<StackProfile> whole;
  EXPECT_TRUE(profiler.profile(1h, keep(whole)));
  (void)caller_of_the_spin(0.3);
  EXPECT_TRUE(profiler.profile(1h, keep(last)));
  std::this_thread::sleep_for(150ms);
  profiler.end();
  const StackProfile of_whole = whole.get_future().get(), of_last = last.get_future().get();
  EXPECT_GT(of_whole.samples, 8);
  EXPECT_LT(of_last.samples, 5);
}

TEST(CpuProfiler, DoneMayAskAgainAndTheEndBringsWhatThereIs) {
  std::atomic<int> windows  = 0;
  std::atomic<bool> refused = false, ended = false;
  CpuProfiler profiler;
  CpuProfiler::Done again = [&](const StackProfile&) {
    ++windows;
    if (!profiler.profile(50ms, again)) refused = true;
  };
  EXPECT_TRUE(profiler.profile(50ms, again));
  while (windows < 3) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(profiler.profile(1h, [&](const StackProfile& profile) {
    ended = true;
    EXPECT_LT(profile.lasted, 600s);
  }));
  const auto unwanted =
      profiler.profile(1h, [&](const StackProfile&) { ADD_FAILURE() << "it was cancelled"; });
  profiler.cancel(unwanted.value());
  profiler.cancel(unwanted.value());
  profiler.end();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(refused);
  EXPECT_FALSE(profiler.profile(1s, again));
}

// Exceptions are thrown by the unwinder that the handler uses.
TEST(CpuProfiler, InterruptsThreadsThatThrow) {
  CpuProfiler profiler;
  int64_t caught             = 0;
  const StackProfile profile = profile_while(profiler, [&] {
    for (const double until = thread_cpu_s() + 0.4; thread_cpu_s() < until;) try {
        throw std::runtime_error("again");
      } catch (const std::exception&) {
        ++caught;
      }
  });
  EXPECT_GT(caught, 1000);
  EXPECT_GT(profile.samples, 5);
}

// A reader of the wire format: the fields of a message, numbers as they are and the rest as bytes.
struct WireMessage {
  std::multimap<int, uint64_t> numbers;
  std::multimap<int, std::string> bytes;

  explicit WireMessage(std::string_view text) {
    while (!text.empty()) {
      const uint64_t tag = varint(text);
      const auto field   = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        numbers.emplace(field, varint(text));
      } else {
        EXPECT_EQ(tag & 7, 2u);
        const uint64_t size = varint(text);
        bytes.emplace(field, std::string(text.substr(0, size)));
        text.remove_prefix(size);
      }
    }
  }
  uint64_t number(int field) const { return numbers.count(field) ? numbers.find(field)->second : 0; }
  std::vector<WireMessage> messages(int field) const {
    std::vector<WireMessage> all;
    const auto [begin, end] = bytes.equal_range(field);
    for (auto one = begin; one != end; ++one) all.emplace_back(one->second);
    return all;
  }
  std::vector<uint64_t> packed(int field) const {
    std::vector<uint64_t> all;
    if (!bytes.count(field)) return all;
    for (std::string_view text = bytes.find(field)->second; !text.empty();) all.push_back(varint(text));
    return all;
  }

  static uint64_t varint(std::string_view& text) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(text.at(0));
      text.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
  }
};

StackProfile known_profile() {
  const auto inner = reinterpret_cast<uintptr_t>(&spin_in_the_innermost) + 1,
             outer = reinterpret_cast<uintptr_t>(&caller_of_the_spin) + 1;
  return {.began = std::chrono::system_clock::time_point(std::chrono::nanoseconds(1'700'000'000'123'456'000)),
          .lasted     = 2s,
          .period     = 10ms,
          .stacks     = {{.thread = "one", .stack = {inner, outer}, .samples = 300, .cpu_ns = 3'000'000'000},
                         {.thread = "two", .stack = {outer}, .samples = 1, .cpu_ns = 10'000'000},
                         {.thread = "one", .stack = {inner + 1, outer}, .samples = 2, .cpu_ns = 20'000'000}},
          .samples    = 303,
          .dropped    = 7,
          .cpu_s      = 3.1,
          .overhead_s = 0.0031};
}

TEST(Pprof, HoldsWhatWasCounted) {
  const WireMessage profile(to_pprof(known_profile()));
  std::vector<std::string> strings;
  const auto [begin, end] = profile.bytes.equal_range(6);
  for (auto one = begin; one != end; ++one) strings.push_back(one->second);
  ASSERT_FALSE(strings.empty());
  EXPECT_EQ(strings[0], "");
  std::vector<std::string> types;
  for (const WireMessage& type : profile.messages(1))
    types.push_back(strings.at(type.number(1)) + "/" + strings.at(type.number(2)));
  EXPECT_EQ(types, (std::vector<std::string>{"samples/count", "cpu/nanoseconds"}));

  std::map<uint64_t, std::string> functions, names;
  std::map<uint64_t, uint64_t> addresses;
  for (const WireMessage& function : profile.messages(5))
    EXPECT_TRUE(functions.emplace(function.number(1), strings.at(function.number(2))).second);
  for (const WireMessage& location : profile.messages(4)) {
    EXPECT_NE(location.number(1), 0u);
    addresses[location.number(1)] = location.number(3);
    const auto lines              = location.messages(4);
    ASSERT_EQ(lines.size(), 1u);
    names[location.number(1)] = functions.at(lines[0].number(1));
  }
  EXPECT_EQ(addresses.size(), 3u);
  EXPECT_EQ(functions.size(), 2u) << "two addresses are of one function";

  const StackProfile known = known_profile();
  const auto samples       = profile.messages(2);
  ASSERT_EQ(samples.size(), known.stacks.size());
  for (size_t s = 0; s < samples.size(); ++s) {
    const StackCount& counted = known.stacks[s];
    std::vector<uintptr_t> stack;
    for (const uint64_t id : samples[s].packed(1)) stack.push_back(addresses.at(id));
    EXPECT_EQ(stack, counted.stack);
    EXPECT_EQ(samples[s].packed(2), (std::vector<uint64_t>{static_cast<uint64_t>(counted.samples),
                                                           static_cast<uint64_t>(counted.cpu_ns)}));
    const auto labels = samples[s].messages(3);
    ASSERT_EQ(labels.size(), 1u);
    EXPECT_EQ(strings.at(labels[0].number(1)), "thread");
    EXPECT_EQ(strings.at(labels[0].number(2)), counted.thread);
  }
  EXPECT_NE(names.at(samples[0].packed(1)[0]).find("spin_in_the_innermost"), std::string::npos);
  EXPECT_NE(names.at(samples[0].packed(1)[1]).find("caller_of_the_spin"), std::string::npos);

  EXPECT_EQ(profile.number(9), 1'700'000'000'123'456'000u);
  EXPECT_EQ(profile.number(10), 2'000'000'000u);
  EXPECT_EQ(profile.number(12), 10'000'000u);
  ASSERT_EQ(profile.messages(11).size(), 1u);
  EXPECT_EQ(strings.at(profile.messages(11)[0].number(1)), "cpu");
  EXPECT_EQ(strings.at(profile.packed(13).at(0)),
            "3.1 s of CPU time, 0.1 % of it in the signal handler; 7 of 310 samples dropped");
}

TEST(Pprof, NothingIsAProfileToo) {
  const WireMessage profile(to_pprof({}));
  EXPECT_EQ(profile.messages(1).size(), 2u);
  EXPECT_EQ(profile.messages(2).size(), 0u);
  EXPECT_EQ(to_folded({}), "");
}

TEST(Folded, HasALineForEachStackOfFunctions) {
  const std::string text = to_folded(known_profile());
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  ASSERT_EQ(lines.size(), 2u) << text;  // two addresses of a function are one
  EXPECT_TRUE(lines[0].starts_with("one;")) << text;
  EXPECT_TRUE(lines[0].ends_with(" 302")) << text;
  EXPECT_LT(lines[0].find("caller_of_the_spin"), lines[0].find("spin_in_the_innermost")) << text;
  EXPECT_TRUE(lines[1].starts_with("two;")) << text;
  EXPECT_TRUE(lines[1].ends_with(" 1")) << text;
}

}  // namespace
}  // namespace fathom::profile
