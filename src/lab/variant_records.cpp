#include "lab/variant_records.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/cpus.h"
#include "core/expect.h"
#include "lab/devices.h"

namespace fathom::lab {
namespace {

const Value& first_value(const Axis& axis) {
  FATHOM_EXPECT(!axis.values.empty(), fmt::format("axis '{}' has no values", axis.name));
  return axis.values.front();
}

double number(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return 0;
}

std::optional<Skip> skip_of(const ExperimentInfo& experiment, const VariantInfo& variant) {
  if (experiment.backend == Backend::cuda) {
    if (!device_of(experiment)) return Skip{"needs_cuda", "a GPU: " + why_no_device(kExperimentDevice)};
    if (device_count() < experiment.ranks)
      return Skip{"needs_gpus", fmt::format("{} GPUs", experiment.ranks)};
  }
  if (!variant.has_launch && !variant.has_prepare) return Skip{"needs_cuda", "a CUDA build and a GPU"};
  for (const machine::Feature feature : variant.needs)
    if (const auto why = machine::missing(feature)) return Skip{"needs_feature", *why};
  if (!variant.library.empty()) {
    void* handle = dlopen(variant.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return Skip{"needs_library", variant.library};
    dlclose(handle);
  }
  return std::nullopt;
}

std::vector<Point> points_of(const ExperimentInfo& experiment, const std::vector<Axis>& overrides) {
  const auto axes = override_axes(experiment.axes, overrides, experiment.check_at);
  FATHOM_EXPECT(axes.has_value(), axes.error().message);
  return cross_product(*axes);
}

std::vector<Point> all_timed_points(const ExperimentInfo& experiment, const RunOptions& run) {
  std::vector<Axis> known;
  for (const Axis& axis : run.axes)  // one override list serves all targets: each takes what it has
    if (std::any_of(experiment.axes.begin(), experiment.axes.end(),
                    [&](const Axis& a) { return a.name == axis.name; }))
      known.push_back(axis);
  if (!known.empty()) return points_of(experiment, known);
  // Sessions have no check points. The few requests of a quick run prove their answers as well as many do.
  if (run.check_only) return points_of(experiment, experiment.quick);
  if (!run.quick && !run.aa) return points_of(experiment, {});
  std::vector<Point> points = points_of(experiment, experiment.quick);
  points.resize(1);
  // The method is tried at the point of a quick run, and where its calls are too long for it, at others.
  if (run.aa && !run.quick && experiment.shape == Shape::call)
    for (const Point& at : points_of(experiment, {}))
      if (at.to_string() != points[0].to_string()) points.push_back(at);
  return points;
}

}  // namespace

std::optional<Skip> beyond_up_to(const VariantInfo& variant, const Point& at) {
  for (const auto& [name, last] : variant.up_to)
    if (const Value* value = at.find(name); value && number(*value) > number(last))
      return Skip{"beyond_up_to", fmt::format("{} <= {}", name, to_string(last))};
  return std::nullopt;
}

std::vector<Point> check_points(const ExperimentInfo& experiment) {
  std::vector<Axis> axes;
  for (const Axis& axis : experiment.axes) {
    const auto own = std::find_if(experiment.check_at.begin(), experiment.check_at.end(),
                                  [&](const Axis& a) { return a.name == axis.name; });
    axes.push_back(own != experiment.check_at.end() ? *own : Axis{axis.name, {first_value(axis)}});
  }
  return cross_product(axes);
}

std::vector<Point> timed_points(const ExperimentInfo& experiment, const MeasureOptions& options) {
  std::vector<Point> points = all_timed_points(experiment, options.run);
  std::erase_if(points, [&](const Point& at) {
    return std::find(options.done.begin(), options.done.end(), at.to_string()) != options.done.end();
  });
  return points;
}

double seconds_for_a_point(const ExperimentInfo& experiment, const MeasureOptions& options) {
  if (options.run.aa && !options.run.quick) return 4.0;
  const auto points = static_cast<double>(all_timed_points(experiment, options.run).size());
  return (options.run.quick ? 3.0 : 10.0) / points;
}

std::vector<VariantRecord> blank_records(const ExperimentInfo& experiment, const MeasureOptions& options) {
  std::vector<VariantRecord> records;
  for (const VariantInfo& variant : experiment.variants) {
    VariantRecord record;
    record.id         = variant.id;
    record.kind       = to_string(variant.kind);
    record.idea       = variant.idea;
    record.techniques = variant.techniques;
    record.threads    = variant.threads == kAllThreads ? host_threads() : variant.threads;
    const auto failed = std::find_if(options.failed.begin(), options.failed.end(),
                                     [&](const VariantRecord& f) { return f.id == variant.id; });
    if (failed != options.failed.end()) {
      record.status    = failed->status;
      record.skip      = failed->skip;
      record.detail    = failed->detail;
      record.caught_by = failed->caught_by;
      if (record.status != Outcome::skipped) record.verdict = "INVALID";
    } else if (const auto skip = skip_of(experiment, variant)) {
      record.status = Outcome::skipped;
      record.skip   = skip;
    }
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<VariantRecord> records_at(const ExperimentInfo& experiment, const Point& at,
                                      std::vector<VariantRecord> records) {
  for (size_t v = 0; v < records.size(); ++v) {
    if (records[v].status != Outcome::ok) continue;
    records[v].skip = beyond_up_to(experiment.variants[v], at);
    if (records[v].skip) records[v].status = Outcome::skipped;
  }
  return records;
}

bool any_to_run(const std::vector<VariantRecord>& records) {
  return std::any_of(records.begin(), records.end(),
                     [](const VariantRecord& record) { return record.status == Outcome::ok; });
}

}  // namespace fathom::lab
