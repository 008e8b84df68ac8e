// One experiment as a program of its own, for a profiler, a debugger or another GPU: it makes calls of one
// variant in this process and does nothing else that costs time. docs/lab.md shows how to build one.
//   ch09_inline_ptx                        what there is
//   ch09_inline_ptx ptx n=4096 --calls 10  ten calls, and a check of what the last one left behind
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/exit_code.h"
#include "core/expect.h"
#include "lab/devices.h"
#include "lab/experiment_ranges.h"
#include "lab/input_sets.h"
#include "lab/registry.h"
#include "lab/target.h"
#include "lab/thread_pools.h"
#include "lab/variant_records.h"

namespace fathom::lab {
namespace {

constexpr uint64_t kSeed = 1;

// What was typed is wrong; main() says what there is.
struct WrongArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Arguments {
  std::string variant;
  MeasureOptions options;
  int64_t calls = 10;
};

std::vector<std::string> ids(const std::vector<VariantInfo>& variants) {
  std::vector<std::string> ids;
  for (const VariantInfo& variant : variants) ids.push_back(variant.id);
  return ids;
}

std::string usage(const ExperimentInfo& experiment, std::string_view program) {
  std::string text =
      fmt::format("{}: {}\nusage: {} VARIANT [AXIS=VALUE ...] [--calls N]\nvariants: {}\n", experiment.id,
                  experiment.question, program, fmt::join(ids(experiment.variants), " "));
  for (const Axis& axis : experiment.axes) {
    std::vector<std::string> values;
    for (const Value& value : axis.values) values.push_back(to_string(value));
    text += fmt::format("{}: {} (the first, unless another is given)\n", axis.name, fmt::join(values, " "));
  }
  return text;
}

Arguments parse(const ExperimentInfo& experiment, const std::vector<std::string>& words) {
  Arguments arguments{.variant = words.front()};
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--calls" && i + 1 < words.size()) {
      const std::string& text = words[++i];
      const auto read         = std::from_chars(text.data(), text.data() + text.size(), arguments.calls);
      if (read.ec != std::errc() || read.ptr != text.data() + text.size() || arguments.calls < 1)
        throw WrongArgument(fmt::format("--calls {}: a whole number of at least 1", text));
      continue;
    }
    const auto axis = parse_axis(words[i]);
    if (!axis) throw WrongArgument(axis.error().message);
    arguments.options.run.axes.push_back(*axis);
  }
  if (const auto axes = override_axes(experiment.axes, arguments.options.run.axes, experiment.check_at);
      !axes)
    throw WrongArgument(axes.error().message);
  return arguments;
}

int call(const ExperimentInfo& experiment, const Arguments& arguments) {
  const std::vector<std::string> known = ids(experiment.variants);
  const auto found                     = std::find(known.begin(), known.end(), arguments.variant);
  if (found == known.end())
    throw WrongArgument(
        fmt::format("no variant '{}'; there are {}", arguments.variant, fmt::join(known, " ")));
  const auto v               = static_cast<int>(found - known.begin());
  const VariantInfo& variant = experiment.variants[static_cast<size_t>(v)];
  if (experiment.shape != Shape::call || variant.python)
    throw WrongArgument("ranks, sessions and libraries of Python need more than one process: fathom run " +
                        experiment.id);

  const Point at       = timed_points(experiment, arguments.options).front();
  const auto records   = records_at(experiment, at, blank_records(experiment, arguments.options));
  const auto& record   = records[static_cast<size_t>(v)];
  const std::string id = result_id(experiment.id, variant.id, at);
  if (record.status == Outcome::skipped) {
    fmt::print("{}: skipped: {}: {}\n", id, record.skip->reason, record.skip->need);
    return kExitNothingRan;
  }
  Seeds seeds(kSeed);
  ThreadPools pools;
  InputSets sets(experiment, at, 1, seeds);
  Device* device  = device_of(experiment);
  const auto wait = [&] {
    if (device) device->synchronize();
  };
  Context context{device ? device->stream() : nullptr, pools.of(variant.threads)};
  if (variant.has_prepare) sets.prepare(v, context);
  sets[0].arena().poison(0);
  wait();
  {
    const ExperimentRanges ranges(experiment.id + "/" + variant.id);
    for (int64_t i = 0; i < arguments.calls; ++i) sets[0].call(v, context);
    wait();
  }
  const Inspection seen =
      inspect(sets[0], sets.history(0), sets.checksum(0),
              {.sample = 1024, .seed = kSeed, .pool = pools.of_references(experiment.backend)}, false);
  fmt::print("{}: {} calls; {}\n", id, arguments.calls,
             seen.caught ? "WRONG: " + seen.caught->detail
                         : fmt::format("{} elements of the last one's output are right", seen.elements()));
  return seen.caught ? kExitWrongOutput : kExitOk;
}

int standalone(int argc, char** argv) {
  FATHOM_EXPECT(experiments().size() == 1, "a stand-alone program holds one experiment");
  const ExperimentInfo& experiment = experiments().front();
  const std::string_view path      = argv[0];
  const std::string program        = std::string(path.substr(path.rfind('/') + 1));
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words.front() == "--help") {
    fmt::print("{}", usage(experiment, program));
    return kExitOk;
  }
  try {
    return call(experiment, parse(experiment, words));
  } catch (const WrongArgument& error) {
    fmt::print(stderr, "{}: {}\n{}", program, error.what(), usage(experiment, program));
    return kExitUsage;
  } catch (const Unavailable& error) {
    fmt::print("{}: skipped: {}: {}\n", experiment.id, error.reason(), error.what());
    return kExitNothingRan;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kExitCrash;
  }
}

}  // namespace
}  // namespace fathom::lab

int main(int argc, char** argv) { return fathom::lab::standalone(argc, argv); }
