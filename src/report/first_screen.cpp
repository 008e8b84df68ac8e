#include "report/first_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "lab/quantity.h"
#include "report/doubts.h"
#include "report/highlights.h"
#include "report/lessons.h"
#include "report/markdown.h"
#include "report/overview_chart.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

// The first member of that name anywhere in the manifest, so that its layout may grow. Null if there is none.
const nlohmann::json* find_member(const nlohmann::json& json, const std::string& name) {
  if (!json.is_object()) return nullptr;
  if (const auto found = json.find(name); found != json.end() && !found->is_structured()) return &*found;
  for (const auto& member : json)
    if (const auto* found = find_member(member, name)) return found;
  return nullptr;
}

std::string member_text(const nlohmann::json& json, const std::string& name) {
  const auto* found = find_member(json, name);
  return !found || found->is_null() ? "" : found->is_string() ? found->get<std::string>() : found->dump();
}

// "An invented CPU @ 2.4 GHz, 2 cores; NVIDIA H200": the GPU only where experiments used one.
std::string machine_words(const RunRecord& run, const nlohmann::json& manifest) {
  std::string words = member_text(manifest, "cpu");
  if (const std::string cores = member_text(manifest, "cores"); !words.empty() && !cores.empty())
    words += fmt::format(", {} core{}", cores, cores == "1" ? "" : "s");
  const bool cuda =
      std::any_of(run.experiments.begin(), run.experiments.end(),
                  [](const ExperimentRecord& e) { return e.backend == "cuda" && !was_skipped(e); });
  const auto machine = manifest.is_object() ? manifest.find("machine") : manifest.end();
  if (cuda && machine != manifest.end() && machine->is_object() && machine->contains("gpu")) {
    const std::string gpu = member_text((*machine)["gpu"], "name");
    if (!gpu.empty()) words = gpu + (words.empty() ? "" : "; " + words);
  }
  return words;
}

bool was_quick(const nlohmann::json& manifest) {
  const auto argv = manifest.is_object() ? manifest.find("argv") : manifest.end();
  return manifest.is_object() && argv != manifest.end() && argv->is_array() &&
         std::find(argv->begin(), argv->end(), "--quick") != argv->end();
}

// "11 min 14 s".
std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  return whole < 60 ? time_text(seconds * 1e9) : fmt::format("{} min {} s", whole / 60, whole % 60);
}

void header_fact(std::string& out, std::string_view name, std::string_view value) {
  if (!value.empty()) out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
}

// A number and what it counts. `value` is HTML.
void headline(std::string& out, std::string_view value, std::string_view what, std::string_view style = "") {
  out += fmt::format("<div><dt>{}</dt><dd{}>{}</dd></div>\n", escape(what),
                     style.empty() ? "" : fmt::format(" class=\"{}\"", style), value);
}

std::vector<double> best_shares(const RunRecord& run) {
  std::vector<double> shares;
  for (const ExperimentRecord& experiment : run.experiments) {
    const PointRecord* point  = headline_point(experiment);
    const VariantRecord* best = point ? best_of(*point) : nullptr;
    if (best && best->share_of_limit && std::isfinite(*best->share_of_limit))
      shares.push_back(*best->share_of_limit);
  }
  std::sort(shares.begin(), shares.end());
  return shares;
}

std::string tallies_html(const Tally& tally) {
  std::string out;
  const auto add = [&](int number, std::string_view style, std::string_view sign, std::string_view word) {
    if (number > 0)
      out += fmt::format("<span class=\"{}\" title=\"{}\">{} {}</span>", style, word, sign, number);
  };
  add(tally.faster, "good", "▲", "faster");
  add(tally.slower, "bad", "▼", "slower");
  add(tally.same, "same", "=", "same");
  add(tally.inconclusive, "doubt", "?", "inconclusive");
  return out.empty() ? std::string(kAbsent) : out;
}

// "2 invalid, 1 advisory", and how many those are together.
std::pair<int, std::string> doubt_words(const DoubtCounts& doubts) {
  int total = 0;
  std::string words;
  for (const auto& [number, word] :
       {std::pair{doubts.invalid, "invalid"}, std::pair{doubts.failed, "failed"},
        std::pair{doubts.advisory, "unreliable"}, std::pair{doubts.stale, "stale"},
        std::pair{doubts.above_limit, "above the limit"}})
    if (number > 0) {
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", number, word);
      total += number;
    }
  return {total, words.empty() ? "warnings" : words + ": see Warnings"};
}

}  // namespace

std::string report_header(const RunRecord& run, const nlohmann::json& manifest,
                          const ReportContext& context) {
  const Tally tally         = tally_of(run);
  const Aggregate aggregate = geometric_mean_of(run);
  double seconds            = 0;
  int skipped               = 0;
  for (const ExperimentRecord& experiment : run.experiments) {
    seconds += experiment.seconds;
    skipped += was_skipped(experiment) ? 1 : 0;
  }
  std::string out = fmt::format("<header id=\"top\">\n<h1>Fathom report{}</h1>\n<dl class=\"facts\">\n",
                                run.label.empty() ? "" : ": " + escape(run.label));
  const std::string machine = machine_words(run, manifest);
  header_fact(out, "on", machine.empty() ? run.machine : fmt::format("{} ({})", machine, run.machine));
  header_fact(out, "started", date_text(run.started));
  header_fact(out, "commit", member_text(manifest, "commit").substr(0, 12));
  if (std::isfinite(seconds) && seconds > 0)
    header_fact(out, "measured for", duration_text(seconds) + (was_quick(manifest) ? ", a quick run" : ""));
  out += "</dl>\n";
  if (run.experiments.empty()) return out + "<p>This run holds no experiment.</p>\n</header>\n";

  const int measured = tally.experiments - skipped;
  const auto shares  = best_shares(run);
  out += "<dl class=\"headline\">\n";
  headline(out, std::to_string(measured),
           fmt::format("experiment{} measured, {} skipped", measured == 1 ? "" : "s", skipped));
  headline(out, aggregate.mean ? ratio_text(*aggregate.mean) : std::string(kAbsent),
           aggregate.mean ? fmt::format("geometric mean of the best speed-ups of {}", aggregate.experiments)
                          : "No experiment has a valid ratio");
  headline(
      out, shares.empty() ? std::string(kAbsent) : share_text(shares[shares.size() / 2]),
      shares.empty() ? "no share of a limit" : fmt::format("median share of the limit of {}", shares.size()));
  headline(out, tallies_html(tally), "variants faster, slower, same, inconclusive", "tallies");
  headline(out,
           fmt::format("{} of {}", tally.predictions_held, tally.predictions_held + tally.predictions_failed),
           "predictions held");
  const auto [doubts, words] = doubt_words(doubts_of(run, context));
  headline(out, doubts > 0 ? fmt::format("<a href=\"#doubts\">✕ {}</a>", doubts) : "0", words);
  return out + "</dl>\n</header>\n";
}

std::string first_screen(const RunRecord& run, const ReportContext& context) {
  const auto lessons        = lessons_of(run);
  const std::string picture = overview_chart(run, lessons), doubts = doubts_html(run, context);
  if (picture.empty() && doubts.empty()) return "";
  std::string out = "<section class=\"first\">\n";
  if (!picture.empty())
    out += "<div>\n<h2>Every experiment: gain and share of the limit</h2>\n" + picture + "</div>\n";
  out += "<div>\n";
  if (!lessons.empty()) {
    out += "<h2>Most instructive</h2>\n<ol class=\"lessons\">\n";
    for (const Lesson& lesson : lessons) {
      const std::string& id = run.experiments[lesson.experiment].id;
      out +=
          fmt::format("<li><a href=\"#e{}\">{}</a>: {} <small>{}</small></li>\n", lesson.experiment,
                      escape(id.substr(id.find('/') + 1)), inline_html(lesson.sentence), escape(lesson.kind));
    }
    out += "</ol>\n";
  }
  if (!doubts.empty()) out += "<h2 id=\"doubts\">Warnings</h2>\n" + doubts;
  return out + "</div>\n</section>\n";
}

}  // namespace fathom::report
