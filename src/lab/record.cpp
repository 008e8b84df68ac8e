#include "lab/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/expect.h"
#include "lab/json_text.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 7> kOutcomes = {"ok",      "skipped", "wrong", "invalid",
                                                       "crashed", "timeout", "oom"};

// ---- writing: what is not finite was not measured, and what was not measured is null or left out

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
  if (!variant.detail.empty()) out["detail"] = variant.detail;
  if (variant.wall_ns) out["wall_ns"] = number(variant.wall_ns);
  if (variant.prepare_ns) out["prepare_ns"] = number(variant.prepare_ns);
  if (variant.limit_rate) out["limit_rate"] = number(variant.limit_rate);
  if (!variant.samples_ns.empty()) out["samples_ns"] = numbers(variant.samples_ns);
  if (!variant.quantiles_ns.empty()) out["quantiles_ns"] = numbers(variant.quantiles_ns);
  return out;
}

// ---- reading: every complaint names the place, "experiments[2].points[0].at: ..."

struct Broken {
  std::string message;
};

class Field {
 public:
  Field(const json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const json& value() const { return value_; }
  bool absent() const { return value_.is_null(); }
  [[noreturn]] void broken(std::string_view expected) const {
    throw Broken{fmt::format("{}: expected {}, found {}", place_.empty() ? "the file" : place_, expected,
                             value_.type_name())};
  }

  const Field& object() const {
    if (!value_.is_object()) broken("an object");
    return *this;
  }
  Field operator[](const char* name) const {
    static const json null;
    const auto found = object().value_.find(name);
    return {found == value_.end() ? null : *found, place_.empty() ? name : place_ + "." + name};
  }
  template <class F>
  void each(F&& visit) const {
    if (absent()) return;
    if (!value_.is_array()) broken("a list");
    for (size_t i = 0; i < value_.size(); ++i) visit(Field(value_[i], fmt::format("{}[{}]", place_, i)));
  }

  std::string text() const {
    if (!value_.is_string()) broken("text");
    return value_.get<std::string>();
  }
  std::string text_or(std::string_view fallback) const { return absent() ? std::string(fallback) : text(); }
  double number() const {
    if (!value_.is_number()) broken("a number");
    return value_.get<double>();
  }
  double number_or(double fallback) const { return absent() ? fallback : number(); }
  int64_t integer_or(int64_t fallback) const {
    if (absent()) return fallback;
    if (value_.is_number_integer()) return value_.get<int64_t>();
    const double real = number();  // 6.7e7 is an integer too
    if (std::abs(real) > 9e15 || real != std::floor(real)) broken("an integer");
    return static_cast<int64_t>(real);
  }
  bool boolean_or(bool fallback) const {
    if (absent()) return fallback;
    if (!value_.is_boolean()) broken("true or false");
    return value_.get<bool>();
  }
  std::optional<std::string> maybe_text() const { return absent() ? std::nullopt : std::optional(text()); }
  std::optional<double> maybe_number() const { return absent() ? std::nullopt : std::optional(number()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> list;
    each([&](const Field& item) { list.push_back(item.text()); });
    return list;
  }
  std::vector<double> numbers() const {  // null keeps its round's place
    std::vector<double> list;
    each(
        [&](const Field& item) { list.push_back(item.number_or(std::numeric_limits<double>::quiet_NaN())); });
    return list;
  }
  Outcome outcome() const {
    if (absent()) return Outcome::ok;
    const std::string name = text();
    const auto found       = std::find(kOutcomes.begin(), kOutcomes.end(), name);
    if (found == kOutcomes.end())
      throw Broken{
          fmt::format("{}: '{}' is no status; there are {}", place_, name, fmt::join(kOutcomes, ", "))};
    return static_cast<Outcome>(found - kOutcomes.begin());
  }

 private:
  const json& value_;
  std::string place_;
};

std::optional<Skip> read_skip(const Field& field) {
  if (field.absent()) return std::nullopt;
  return Skip{.reason = field["reason"].text(), .need = field["need"].text_or("")};
}

std::optional<Spread> read_spread(const Field& field) {
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

std::optional<Ratio> read_ratio(const Field& field) {
  if (field.absent()) return std::nullopt;
  return Ratio{field["median"].number(), field["lo"].number(), field["hi"].number()};
}

Point read_point(const Field& field) {
  std::vector<Point::Parameter> parameters;
  if (field.absent()) return Point{};
  for (auto item = field.object().value().begin(); item != field.value().end(); ++item) {
    const json& value = item.value();
    if (value.is_number_integer())
      parameters.push_back({item.key(), value.get<int64_t>()});
    else if (value.is_number())
      parameters.push_back({item.key(), value.get<double>()});
    else if (value.is_string())
      parameters.push_back({item.key(), value.get<std::string>()});
    else
      field[item.key().c_str()].broken("a number or text");
  }
  return Point(std::move(parameters));
}

VariantRecord read_variant(const Field& field) {
  VariantRecord variant{.id             = field["id"].text(),
                        .kind           = field["kind"].text_or("optimized"),
                        .idea           = field["idea"].text_or(""),
                        .techniques     = field["techniques"].texts(),
                        .threads        = static_cast<int>(field["threads"].integer_or(1)),
                        .status         = field["status"].outcome(),
                        .skip           = read_skip(field["skip"]),
                        .detail         = field["detail"].text_or(""),
                        .caught_by      = field["caught_by"].maybe_text(),
                        .invalid_reason = field["invalid_reason"].maybe_text(),
                        .time_ns        = read_spread(field["time_ns"]),
                        .wall_ns        = field["wall_ns"].maybe_number(),
                        .prepare_ns     = field["prepare_ns"].maybe_number(),
                        .ratio          = read_ratio(field["ratio"]),
                        .verdict        = field["verdict"].maybe_text(),
                        .share_of_limit = field["share_of_limit"].maybe_number(),
                        .limit_rate     = field["limit_rate"].maybe_number(),
                        .bytes_read     = field["bytes_read"].integer_or(0),
                        .bytes_written  = field["bytes_written"].integer_or(0),
                        .flops          = field["flops"].number_or(0),
                        .checked        = {},
                        .prediction     = {},
                        .metrics        = {},
                        .samples_ns     = field["samples_ns"].numbers(),
                        .quantiles_ns   = field["quantiles_ns"].numbers()};
  if (const Field checked = field["checked"]; !checked.absent())
    variant.checked = Checked{.timed_calls = checked["timed_calls"].integer_or(0),
                              .elements    = checked["elements"].integer_or(0),
                              .max_error   = checked["max_error"].number_or(0),
                              .tolerance   = checked["tolerance"].number_or(0)};
  if (const Field prediction = field["prediction"]; !prediction.absent()) {
    variant.prediction = PredictionScore{.text = prediction["text"].text_or(""), .held = {}};
    if (const Field held = prediction["held"]; !held.absent())
      variant.prediction->held = held.boolean_or(false);
  }
  if (const Field metrics = field["metrics"]; !metrics.absent())
    for (auto item = metrics.object().value().begin(); item != metrics.value().end(); ++item) {
      const Field metric = metrics[item.key().c_str()];
      if (const auto value = metric["value"].maybe_number())
        variant.metrics[item.key()] = Metric{*value, metric["better"].text_or("higher")};
    }
  return variant;
}

PointRecord read_point_record(const Field& field) {
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
  if (const Field aa = field["aa"]; !aa.absent())
    point.aa = AaControl{aa["lo"].number(), aa["hi"].number(), aa["advisory"].boolean_or(false)};
  if (const Field noise = field["noise"]; !noise.absent())
    for (auto item = noise.object().value().begin(); item != noise.value().end(); ++item)
      if (const auto value = noise[item.key().c_str()].maybe_number()) point.noise[item.key()] = *value;
  field["variants"].each([&](const Field& item) { point.variants.push_back(read_variant(item)); });
  return point;
}

ExperimentRecord read_experiment(const Field& field) {
  ExperimentRecord experiment{.id          = field["id"].text(),
                              .question    = field["question"].text_or(""),
                              .backend     = field["backend"].text_or("cpu"),
                              .evidence    = field["evidence"].text_or("measured"),
                              .status      = field["status"].outcome(),
                              .skip        = read_skip(field["skip"]),
                              .detail      = field["detail"].text_or(""),
                              .source_hash = field["source_hash"].text_or(""),
                              .catalog     = field["catalog"].texts(),
                              .seconds     = field["seconds"].number_or(0),
                              .points      = {}};
  field["points"].each([&](const Field& item) { experiment.points.push_back(read_point_record(item)); });
  return experiment;
}

RunRecord read_run_record(const Field& field) {
  const std::string schema = field["schema"].text_or("");
  if (schema != RunRecord{}.schema)
    throw Broken{fmt::format("schema: this program reads {}, the file says '{}'{}", RunRecord{}.schema,
                             schema,
                             schema.starts_with("fathom.results/") ? "; a newer fathom wrote it" : "")};
  RunRecord run{.label       = field["label"].text_or(""),
                .started     = field["started"].text_or(""),
                .machine     = field["machine"].absent() ? "" : field["machine"]["id"].text_or(""),
                .manifest    = {},
                .experiments = {}};
  if (const Field manifest = field["manifest"]; !manifest.absent()) run.manifest = manifest.value().dump();
  field["experiments"].each([&](const Field& item) { run.experiments.push_back(read_experiment(item)); });
  return run;
}

template <class T>
Result<T> guarded(const json& value, T (*read)(const Field&)) {
  try {
    return read(Field(value, ""));
  } catch (const Broken& broken) {
    return Error{broken.message};
  }
}

// ---- the committed summary

constexpr size_t kMostBytes     = 14 * 1024;  // of 16 KB: the rest is the file's envelope
constexpr size_t kMostQuantiles = 64;

// Four digits say more than any interval here can hold.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  // By way of decimal text: the shortest that prints back is what the file then holds.
  return std::stod(fmt::format("{:.3e}", value));
}

// Minimum and maximum included.
std::vector<double> quantiles(std::vector<double> samples, size_t count) {
  std::erase_if(samples, [](double s) { return !std::isfinite(s); });
  std::vector<double> out;
  for (size_t i = 0; i < count && !samples.empty(); ++i)
    out.push_back(rounded(measure::quantile(samples, static_cast<double>(i) / (count - 1))));
  return out;
}

template <class F>
void each_variant(ExperimentRecord& experiment, F&& visit) {
  for (PointRecord& point : experiment.points)
    for (VariantRecord& variant : point.variants) visit(variant);
}

void round(VariantRecord& variant) {
  if (variant.time_ns)
    for (const auto part : {&Spread::median, &Spread::lo, &Spread::hi, &Spread::min, &Spread::p10,
                            &Spread::p90, &Spread::mad, &Spread::autocorrelation})
      (*variant.time_ns).*part = rounded((*variant.time_ns).*part);
  if (variant.ratio)
    for (const auto part : {&Ratio::median, &Ratio::lo, &Ratio::hi})
      (*variant.ratio).*part = rounded((*variant.ratio).*part);
  if (variant.checked)
    for (const auto part : {&Checked::max_error, &Checked::tolerance})
      (*variant.checked).*part = rounded((*variant.checked).*part);
  for (auto* part : {&variant.share_of_limit, &variant.limit_rate, &variant.wall_ns, &variant.prepare_ns})
    if (*part) **part = rounded(**part);
  for (auto& [name, metric] : variant.metrics) metric.value = rounded(metric.value);
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

Result<PointRecord> point_from_json(const nlohmann::json& json) { return guarded(json, read_point_record); }

Result<ExperimentRecord> experiment_from_json(const nlohmann::json& json) {
  return guarded(json, read_experiment);
}

Result<RunRecord> run_from_json(const nlohmann::json& json) { return guarded(json, read_run_record); }

Result<RunRecord> read_run(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? fs::path(path) / "results.json" : fs::path(path);
  std::ifstream in(file, std::ios::binary);
  if (!in)
    return Error{fmt::format("cannot read {}: {}; give a results.json or the folder of a run", file.string(),
                             std::strerror(errno))};
  std::ostringstream contents;
  contents << in.rdbuf();
  json parsed;
  try {
    parsed = json::parse(contents.str());
  } catch (const json::exception& error) {
    return Error{fmt::format("{} is not JSON: {}", file.string(), error.what())};
  }
  auto run = run_from_json(parsed);
  if (!run) return Error{fmt::format("{} is not a record of a run: {}", file.string(), run.error().message)};
  return run;
}

void write_file_whole(const std::string& path, std::string_view contents) {
  namespace fs              = std::filesystem;
  const std::string partial = fmt::format("{}.{}.partial", path, getpid());
  const auto failed         = [&](std::string_view step) {
    const int error = errno;
    unlink(partial.c_str());
    throw SystemError(fmt::format("cannot {} {}: {}; is the disk full, or the folder not yours?", step, path,
                                          std::strerror(error)));
  };
  std::error_code ignored;  // a failure shows in open(), with errno
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty())
    fs::create_directories(folder, ignored);
  const int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file == -1) failed("create");
  while (!contents.empty()) {
    const ssize_t written = write(file, contents.data(), contents.size());
    if (written == -1 && errno == EINTR) continue;
    if (written == -1) {
      close(file);
      failed("write");
    }
    contents.remove_prefix(static_cast<size_t>(written));
  }
  // On the disk before the rename, or a power cut could leave the new name with no contents.
  if (fsync(file) == -1 && errno != EINVAL) {
    close(file);
    failed("flush");
  }
  if (close(file) == -1) failed("close");
  if (rename(partial.c_str(), path.c_str()) == -1) failed("replace");
}

ExperimentRecord committed(ExperimentRecord experiment) {
  each_variant(experiment, [](VariantRecord& v) {
    if (!v.samples_ns.empty()) v.quantiles_ns = quantiles(v.samples_ns, kMostQuantiles);
    v.samples_ns.clear();
    round(v);
  });
  const auto fits = [&] { return record_text(to_json(experiment)).size() <= kMostBytes; };
  // Many points and variants: less of each, rather than a file that nobody can review. The least telling goes
  // first; what can be derived or read in the source goes last.
  for (size_t count = kMostQuantiles / 2; count >= 8 && !fits(); count /= 2)
    each_variant(experiment, [&](VariantRecord& v) { v.quantiles_ns = quantiles(v.quantiles_ns, count); });
  if (!fits()) each_variant(experiment, [](VariantRecord& v) { v.quantiles_ns.clear(); });
  if (!fits())
    each_variant(experiment, [](VariantRecord& v) {
      v.metrics.erase("bytes_per_s");
      v.metrics.erase("flops_per_s");
      v.idea.clear();
      v.techniques.clear();
    });
  if (!fits())
    each_variant(experiment, [](VariantRecord& v) {
      v.checked.reset();
      if (v.time_ns) v.time_ns->mad = v.time_ns->autocorrelation = 0;
    });
  return experiment;
}

int exit_code(const RunRecord& run) {
  // The worst first; 1, a regression, needs a second record (lab/expectation.h).
  bool wrong = false, crashed = false, invalid = false, ran = false;
  const auto count = [&](Outcome outcome) {
    wrong |= outcome == Outcome::wrong;
    crashed |= outcome == Outcome::crashed || outcome == Outcome::timeout || outcome == Outcome::oom;
    invalid |= outcome == Outcome::invalid;
    ran |= outcome == Outcome::ok;
  };
  for (const ExperimentRecord& experiment : run.experiments) {
    // "ok" of the whole says nothing ran by itself; only a variant's does.
    if (experiment.status != Outcome::ok) count(experiment.status);
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants) {
        count(variant.status);
        invalid |= variant.verdict == "INVALID";
      }
  }
  return wrong ? 2 : crashed ? 6 : invalid ? 3 : ran ? 0 : 4;
}

}  // namespace fathom::lab
