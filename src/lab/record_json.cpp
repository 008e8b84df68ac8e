// The JSON of records, both ways: docs/records.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_field.h"
#include "lab/counter_binding.h"
#include "lab/record.h"

namespace fathom::lab {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 7> kOutcomes = {"ok",      "skipped", "wrong", "invalid",
                                                       "crashed", "timeout", "oom"};

// ---- writing: a value that is not finite was not measured; a value that was not measured is null or left
// out

// Whole numbers print without a decimal point: shorter, and as exact.
json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::abs(value) < 1e15 && value == std::floor(value) ? json(static_cast<int64_t>(value))
                                                              : json(value);
}
json number(const std::optional<double>& value) { return value ? number(*value) : json(nullptr); }

json text(const std::optional<std::string>& value) { return value ? json(*value) : json(nullptr); }

json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

json to_json(const std::optional<Skip>& skip) {
  if (!skip) return nullptr;
  return {{"reason", skip->reason}, {"need", skip->need}};
}

json to_json(const std::optional<Spread>& spread) {
  if (!spread || !std::isfinite(spread->median + spread->lo + spread->hi)) return nullptr;
  json out = {{"median", number(spread->median)}, {"lo", number(spread->lo)},   {"hi", number(spread->hi)},
              {"min", number(spread->min)},       {"p10", number(spread->p10)}, {"p90", number(spread->p90)}};
  if (spread->mad != 0) out["mad"] = number(spread->mad);
  if (spread->autocorrelation != 0) out["autocorrelation"] = number(spread->autocorrelation);
  return out;
}

json to_json(const std::optional<Ratio>& ratio) {
  if (!ratio || !std::isfinite(ratio->median + ratio->lo + ratio->hi)) return nullptr;
  return {{"median", number(ratio->median)}, {"lo", number(ratio->lo)}, {"hi", number(ratio->hi)}};
}

json to_json(const std::optional<Checked>& checked) {
  if (!checked) return nullptr;
  return {{"timed_calls", checked->timed_calls},
          {"elements", checked->elements},
          {"max_error", number(checked->max_error)},
          {"tolerance", number(checked->tolerance)}};
}

json to_json(const std::optional<PredictionScore>& prediction) {
  if (!prediction) return nullptr;
  return {{"text", prediction->text}, {"held", prediction->held ? json(*prediction->held) : json(nullptr)}};
}

json to_json(const Point& point) {
  json at = json::object();
  for (const auto& [name, value] : point.parameters())
    std::visit([&, &name = name](const auto& v) { at[name] = v; }, value);
  return at;
}

json to_json(const VariantRecord& variant) {
  json metrics = json::object();
  for (const auto& [name, metric] : variant.metrics)
    metrics[name] = {{"value", number(metric.value)}, {"better", metric.better}};
  json out = {{"id", variant.id},
              {"kind", variant.kind},
              {"idea", variant.idea},
              {"techniques", variant.techniques},
              {"threads", variant.threads},
              {"status", to_string(variant.status)},
              {"skip", to_json(variant.skip)},
              {"caught_by", text(variant.caught_by)},
              {"invalid_reason", text(variant.invalid_reason)},
              {"time_ns", to_json(variant.time_ns)},
              {"ratio", to_json(variant.ratio)},
              {"verdict", text(variant.verdict)},
              {"share_of_limit", number(variant.share_of_limit)},
              {"bytes_read", variant.bytes_read},
              {"bytes_written", variant.bytes_written},
              {"flops", number(variant.flops)},
              {"checked", to_json(variant.checked)},
              {"prediction", to_json(variant.prediction)},
              {"metrics", metrics}};
  if (!variant.library.empty()) out["library"] = variant.library;
  if (!variant.detail.empty()) out["detail"] = variant.detail;
  if (variant.wall_ns) out["wall_ns"] = number(variant.wall_ns);
  if (variant.prepare_ns) out["prepare_ns"] = number(variant.prepare_ns);
  if (variant.limit_rate) out["limit_rate"] = number(variant.limit_rate);
  if (!variant.counters_bound_to.empty()) out["counters_bound_to"] = variant.counters_bound_to;
  if (!variant.samples_ns.empty()) out["samples_ns"] = numbers(variant.samples_ns);
  if (!variant.quantiles_ns.empty()) out["quantiles_ns"] = numbers(variant.quantiles_ns);
  return out;
}

// ---- reading: every error names the place, "experiments[2].points[0].at: ..."

Outcome read_outcome(const JsonField& field) {
  if (field.absent()) return Outcome::ok;
  const std::string name = field.text();
  const auto found       = std::find(kOutcomes.begin(), kOutcomes.end(), name);
  if (found == kOutcomes.end())
    throw BrokenJson{
        fmt::format("{}: '{}' is no status; there are {}", field.place(), name, fmt::join(kOutcomes, ", "))};
  return static_cast<Outcome>(found - kOutcomes.begin());
}

std::optional<Skip> read_skip(const JsonField& field) {
  if (field.absent()) return std::nullopt;
  return Skip{.reason = field["reason"].text(), .need = field["need"].text_or("")};
}

std::optional<Spread> read_spread(const JsonField& field) {
  if (field.absent()) return std::nullopt;
  const double median = field["median"].number();
  return Spread{.median          = median,
                .lo              = field["lo"].number(),
                .hi              = field["hi"].number(),
                .min             = field["min"].number_or(median),
                .p10             = field["p10"].number_or(median),
                .p90             = field["p90"].number_or(median),
                .mad             = field["mad"].number_or(0),
                .autocorrelation = field["autocorrelation"].number_or(0)};
}

std::optional<Ratio> read_ratio(const JsonField& field) {
  if (field.absent()) return std::nullopt;
  return Ratio{field["median"].number(), field["lo"].number(), field["hi"].number()};
}

Point read_point(const JsonField& field) {
  std::vector<Point::Parameter> parameters;
  field.each_member([&](const std::string& name, const JsonField& parameter) {
    const json& value = parameter.value();
    if (value.is_number_integer())
      parameters.push_back({name, value.get<int64_t>()});
    else if (value.is_number())
      parameters.push_back({name, value.get<double>()});
    else if (value.is_string())
      parameters.push_back({name, value.get<std::string>()});
    else
      parameter.broken("a number or text");
  });
  return Point(std::move(parameters));
}

VariantRecord read_variant(const JsonField& field) {
  VariantRecord variant{.id                = field["id"].text(),
                        .kind              = field["kind"].text_or("optimized"),
                        .idea              = field["idea"].text_or(""),
                        .techniques        = field["techniques"].texts(),
                        .library           = field["library"].text_or(""),
                        .threads           = static_cast<int>(field["threads"].integer_or(1)),
                        .status            = read_outcome(field["status"]),
                        .skip              = read_skip(field["skip"]),
                        .detail            = field["detail"].text_or(""),
                        .caught_by         = field["caught_by"].maybe_text(),
                        .invalid_reason    = field["invalid_reason"].maybe_text(),
                        .time_ns           = read_spread(field["time_ns"]),
                        .wall_ns           = field["wall_ns"].maybe_number(),
                        .prepare_ns        = field["prepare_ns"].maybe_number(),
                        .ratio             = read_ratio(field["ratio"]),
                        .verdict           = field["verdict"].maybe_text(),
                        .share_of_limit    = field["share_of_limit"].maybe_number(),
                        .limit_rate        = field["limit_rate"].maybe_number(),
                        .bytes_read        = field["bytes_read"].integer_or(0),
                        .bytes_written     = field["bytes_written"].integer_or(0),
                        .flops             = field["flops"].number_or(0),
                        .checked           = {},
                        .prediction        = {},
                        .metrics           = {},
                        .counters_bound_to = field["counters_bound_to"].text_or(""),
                        .samples_ns        = field["samples_ns"].numbers(),
                        .quantiles_ns      = field["quantiles_ns"].numbers()};
  if (const JsonField checked = field["checked"]; !checked.absent())
    variant.checked = Checked{.timed_calls = checked["timed_calls"].integer_or(0),
                              .elements    = checked["elements"].integer_or(0),
                              .max_error   = checked["max_error"].number_or(0),
                              .tolerance   = checked["tolerance"].number_or(0)};
  if (const JsonField prediction = field["prediction"]; !prediction.absent()) {
    variant.prediction = PredictionScore{.text = prediction["text"].text_or(""), .held = {}};
    if (const JsonField held = prediction["held"]; !held.absent())
      variant.prediction->held = held.boolean_or(false);
  }
  field["metrics"].each_member([&](const std::string& name, const JsonField& metric) {
    if (const auto value = metric["value"].maybe_number())
      variant.metrics[name] = Metric{*value, metric["better"].text_or("higher")};
  });
  return variant;
}

PointRecord read_point_record(const JsonField& field) {
  PointRecord point{.at               = read_point(field["at"]),
                    .cache            = field["cache"].text_or(""),
                    .clock            = field["clock"].text_or(""),
                    .limit            = field["limit"].text_or(""),
                    .floor_ns         = field["floor_ns"].maybe_number(),
                    .baseline         = field["baseline"].text_or(""),
                    .rounds           = field["rounds"].integer_or(0),
                    .calls_per_sample = field["calls_per_sample"].integer_or(0),
                    .stopped          = field["stopped"].text_or(""),
                    .aa               = {},
                    .noise            = {},
                    .variants         = {}};
  if (const JsonField aa = field["aa"]; !aa.absent())
    point.aa = AaControl{aa["lo"].number(), aa["hi"].number(), aa["advisory"].boolean_or(false)};
  field["noise"].each_member([&](const std::string& name, const JsonField& noise) {
    if (const auto value = noise.maybe_number()) point.noise[name] = *value;
  });
  field["variants"].each([&](const JsonField& item) { point.variants.push_back(read_variant(item)); });
  return point;
}

ExperimentRecord read_experiment(const JsonField& field) {
  ExperimentRecord experiment{.id          = field["id"].text(),
                              .question    = field["question"].text_or(""),
                              .backend     = field["backend"].text_or("cpu"),
                              .evidence    = field["evidence"].text_or("measured"),
                              .status      = read_outcome(field["status"]),
                              .skip        = read_skip(field["skip"]),
                              .detail      = field["detail"].text_or(""),
                              .source_hash = field["source_hash"].text_or(""),
                              .catalog     = field["catalog"].texts(),
                              .group       = field["group"].text_or(""),
                              .seconds     = field["seconds"].number_or(0),
                              .points      = {}};
  field["points"].each([&](const JsonField& item) { experiment.points.push_back(read_point_record(item)); });
  return experiment;
}

RunRecord read_run_record(const JsonField& field) {
  const std::string schema = field["schema"].text_or("");
  if (schema != RunRecord{}.schema)
    throw BrokenJson{fmt::format("schema: this program reads {}, the file says '{}'{}", RunRecord{}.schema,
                                 schema,
                                 schema.starts_with("fathom.results/") ? "; a newer fathom wrote it" : "")};
  RunRecord run{.label       = field["label"].text_or(""),
                .started     = field["started"].text_or(""),
                .machine     = field["machine"].absent() ? "" : field["machine"]["id"].text_or(""),
                .manifest    = {},
                .experiments = {}};
  if (const JsonField manifest = field["manifest"]; !manifest.absent())
    run.manifest = manifest.value().dump();
  field["experiments"].each([&](const JsonField& item) { run.experiments.push_back(read_experiment(item)); });
  refuse_stale_counters(run);
  return run;
}

}  // namespace

std::string_view to_string(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }

nlohmann::json to_json(const PointRecord& point) {
  json aa = nullptr;
  if (point.aa)
    aa = {{"lo", number(point.aa->lo)}, {"hi", number(point.aa->hi)}, {"advisory", point.aa->advisory}};
  if (point.aa && !std::isfinite(point.aa->lo + point.aa->hi)) aa = nullptr;
  json noise = json::object();
  for (const auto& [name, value] : point.noise) noise[name] = number(value);
  json variants = json::array();
  for (const VariantRecord& variant : point.variants) variants.push_back(to_json(variant));
  return {{"at", to_json(point.at)},
          {"cache", point.cache},
          {"clock", point.clock},
          {"limit", point.limit},
          {"floor_ns", number(point.floor_ns)},
          {"baseline", point.baseline},
          {"rounds", point.rounds},
          {"calls_per_sample", point.calls_per_sample},
          {"stopped", point.stopped},
          {"aa", aa},
          {"noise", noise},
          {"variants", variants}};
}

nlohmann::json to_json(const ExperimentRecord& experiment) {
  json points = json::array();
  for (const PointRecord& point : experiment.points) points.push_back(to_json(point));
  json out = {{"id", experiment.id},
              {"question", experiment.question},
              {"backend", experiment.backend},
              {"evidence", experiment.evidence},
              {"status", to_string(experiment.status)},
              {"skip", to_json(experiment.skip)},
              {"source_hash", experiment.source_hash},
              {"catalog", experiment.catalog},
              {"seconds", number(experiment.seconds)},
              {"points", points}};
  if (!experiment.detail.empty()) out["detail"] = experiment.detail;
  if (!experiment.group.empty()) out["group"] = experiment.group;
  return out;
}

nlohmann::json to_json(const RunRecord& run) {
  json experiments = json::array();
  for (const ExperimentRecord& experiment : run.experiments) experiments.push_back(to_json(experiment));
  json manifest = json::parse(run.manifest, nullptr, false);
  if (manifest.is_discarded()) manifest = run.manifest.empty() ? json(nullptr) : json(run.manifest);
  return {{"schema", run.schema},   {"label", run.label},
          {"started", run.started}, {"machine", {{"id", run.machine}}},
          {"manifest", manifest},   {"experiments", experiments}};
}

Result<PointRecord> point_from_json(const nlohmann::json& json) { return read_json(json, read_point_record); }

Result<ExperimentRecord> experiment_from_json(const nlohmann::json& json) {
  return read_json(json, read_experiment);
}

Result<RunRecord> run_from_json(const nlohmann::json& json) { return read_json(json, read_run_record); }

}  // namespace fathom::lab
