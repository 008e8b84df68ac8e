#include "lab/child_protocol.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

using nlohmann::json;

json axes_json(const std::vector<Axis>& axes) {
  json list = json::array();
  for (const Axis& axis : axes) {
    json values = json::array();
    for (const Value& value : axis.values) std::visit([&](const auto& v) { values.push_back(v); }, value);
    list.push_back({{"name", axis.name}, {"values", values}});
  }
  return list;
}

Value value_from(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

void merge_profile(const json& seen, ExperimentRecord& record) {
  for (PointRecord& point : record.points) {
    if (point.at.to_string() != seen.at("at").get<std::string>()) continue;
    for (VariantRecord& variant : point.variants) {
      if (variant.id != seen.at("variant").get<std::string>()) continue;
      for (const auto& [name, metric] : seen.at("metrics").items())
        variant.metrics[name] = {metric.at("value").get<double>(), metric.at("better").get<std::string>()};
      for (const json& note : seen.at("notes"))
        variant.detail += (variant.detail.empty() ? "" : "; ") + note.get<std::string>();
    }
  }
}

}  // namespace

json child_options(const ExperimentInfo& experiment, const MeasureOptions& options) {
  json failed = json::array();
  for (const VariantRecord& record : options.failed)
    failed.push_back(
        {{"id", record.id}, {"status", static_cast<int>(record.status)}, {"detail", record.detail}});
  const RunOptions& run = options.run;
  json candidates       = json::array();
  for (const Candidate& candidate : run.candidates)
    candidates.push_back({{"id", candidate.id},
                          {"source", candidate.source},
                          {"library", candidate.library},
                          {"threads", candidate.threads}});
  return {{"experiment", experiment.id},
          {"candidates", candidates},
          {"parent", getpid()},
          {"started_ns", measure::now_ns(measure::Clock::wall)},
          {"variants", options.variants},
          {"failed", failed},
          {"done", options.done},
          {"axes", axes_json(run.axes)},
          {"quick", run.quick},
          {"cold_start", run.cold_start},
          {"check_only", run.check_only},
          {"iterations", run.iterations},
          {"warmup", run.warmup},
          {"repeat", run.repeat},
          {"seed", run.seed},
          {"aa", run.aa},
          {"profile_set", run.profile_set},
          {"profile_sections", run.profile_sections},
          {"profile_kernels", run.profile_kernels},
          {"folder", run.folder}};
}

MeasureOptions options_from(const json& told) {
  MeasureOptions options;
  options.variants   = told.at("variants").get<std::vector<std::string>>();
  options.done       = told.at("done").get<std::vector<std::string>>();
  options.started_ns = told.at("started_ns");
  for (const json& record : told.at("failed")) {
    VariantRecord failed;
    failed.id     = record.at("id");
    failed.status = static_cast<Outcome>(record.at("status").get<int>());
    failed.detail = record.at("detail");
    options.failed.push_back(std::move(failed));
  }
  for (const json& candidate : told.at("candidates"))
    options.run.candidates.push_back({.id      = candidate.at("id"),
                                      .source  = candidate.at("source"),
                                      .library = candidate.at("library"),
                                      .threads = candidate.at("threads")});
  for (const json& axis : told.at("axes")) {
    options.run.axes.push_back({axis.at("name"), {}});
    for (const json& value : axis.at("values")) options.run.axes.back().values.push_back(value_from(value));
  }
  options.run.quick            = told.at("quick");
  options.run.cold_start       = told.at("cold_start");
  options.run.check_only       = told.at("check_only");
  options.run.iterations       = told.at("iterations");
  options.run.warmup           = told.at("warmup");
  options.run.repeat           = told.at("repeat");
  options.run.seed             = told.at("seed");
  options.run.aa               = told.at("aa");
  options.run.profile_set      = told.at("profile_set");
  options.run.profile_sections = told.at("profile_sections");
  options.run.profile_kernels  = told.at("profile_kernels");
  options.run.folder           = told.at("folder");
  return options;
}

void write_line(int fd, const json& message) {
  const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = write(fd, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);  // the reader is gone
    sent += static_cast<size_t>(n);
  }
}

void ChildEvents::phase(std::string_view variant, std::string_view phase, double fraction) {
  board_.post(variant, phase, fraction);
}

void ChildEvents::point(const PointRecord& point) { write_line(kEventsFd, {{"point", to_json(point)}}); }

void ChildEvents::profiled(const Point& at, std::string_view variant, const Profile& profile) {
  json metrics = json::object();
  for (const auto& [name, metric] : profile.metrics)
    metrics[name] = {{"value", metric.value}, {"better", metric.better}};
  write_line(
      kEventsFd,
      {{"profile",
        {{"at", at.to_string()}, {"variant", variant}, {"metrics", metrics}, {"notes", profile.notes}}}});
}

void merge_message(const json& message, ExperimentRecord& record, std::vector<std::string>& done) {
  if (message.contains("profile")) merge_profile(message["profile"], record);
  if (!message.contains("point")) return;
  auto point = point_from_json(message["point"]);
  FATHOM_EXPECT(point.has_value(), "a child sent a point that cannot be read");
  done.push_back(point->at.to_string());
  record.points.push_back(std::move(*point));
}

}  // namespace fathom::lab
