#include "report/results_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "lab/coverage.h"
#include "lab/quantity.h"
#include "lab/source_hash.h"
#include "report/doubts.h"
#include "report/experiment_panel.h"
#include "report/highlights.h"
#include "report/interval_bar.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string chapter_of(const std::string& id) { return id.substr(0, id.find('/')); }

// "ch07 Memory access"; the id alone for a lab or a chapter that the table lacks.
std::string chapter_title(const std::string& chapter) {
  static const auto chapters = parse_chapters(chapters_toml());
  if (chapters)
    for (const Chapter& c : *chapters)
      if (fmt::format("ch{:02}", c.number) == chapter) return chapter + " " + c.title;
  return chapter;
}

template <class Matches>
bool any_variant(const ExperimentRecord& experiment, Matches matches) {
  return std::any_of(experiment.points.begin(), experiment.points.end(), [&](const PointRecord& point) {
    return std::any_of(point.variants.begin(), point.variants.end(), matches);
  });
}

bool has_failed(const VariantRecord& variant) { return is_failed(variant.status); }
bool is_only_invalid(const VariantRecord& variant) { return is_invalid(variant) && !has_failed(variant); }

// What the filter of verdicts finds: the headline's verdict, and what any variant at any point has.
std::set<std::string> tags_of(const ExperimentRecord& experiment, const VariantRecord* best, bool stale) {
  std::set<std::string> tags;
  if (best) tags.insert(std::string(look_of(*best).words.substr(look_of(*best).words.find(' ') + 1)));
  if (any_variant(experiment, is_only_invalid)) tags.insert("INVALID");
  if (any_variant(experiment, has_failed)) tags.insert("failed");
  if (any_variant(experiment, [](const VariantRecord& v) { return v.status == Outcome::skipped; }))
    tags.insert("part skipped");
  if (std::any_of(experiment.points.begin(), experiment.points.end(), is_advisory)) tags.insert("advisory");
  if (any_variant(experiment,
                  [](const VariantRecord& v) { return v.prediction && !v.prediction->held.value_or(true); }))
    tags.insert("prediction failed");
  if (stale) tags.insert("stale");
  return tags;
}

std::set<std::string> techniques_of(const ExperimentRecord& experiment) {
  std::set<std::string> techniques;
  for (const PointRecord& point : experiment.points)
    for (const VariantRecord& v : point.variants) techniques.insert(v.techniques.begin(), v.techniques.end());
  return techniques;
}

std::string joined(const std::set<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

// What the search reads, in lower case: id, question, variants, their ideas and techniques.
std::string search_text(const ExperimentRecord& experiment) {
  std::set<std::string> words{experiment.id, experiment.question, experiment.group};
  for (const PointRecord& point : experiment.points)
    for (const VariantRecord& v : point.variants) words.insert({v.id, v.idea});
  words.merge(techniques_of(experiment));
  std::string text = joined(words, " ");
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Predictions of all variants at the headline point: "3 of 5".
std::string predictions_text(const PointRecord& point) {
  int held = 0, scored = 0;
  for (const VariantRecord& v : point.variants)
    if (v.prediction && v.prediction->held) {
      ++scored;
      held += *v.prediction->held;
    }
  return scored == 0 ? "" : fmt::format("{} of {}", held, scored);
}

std::string share_html(const VariantRecord* variant) {
  if (!variant || !variant->share_of_limit || !std::isfinite(*variant->share_of_limit))
    return fmt::format("<span class=\"c-share none\">{}</span>", kAbsent);
  return fmt::format(
      "<span class=\"c-share\"><span class=\"meter\" aria-hidden=\"true\"><i style=\"width:{}\"></i></span>{}"
      "</span>",
      percent_text(100 * *variant->share_of_limit), share_text(*variant->share_of_limit));
}

std::string flags_html(const ExperimentRecord& experiment, const PointRecord* point, bool stale) {
  std::string out;
  const auto flag = [&](bool set, std::string_view style, std::string_view words) {
    if (set) out += fmt::format("<span class=\"flag {}\">{}</span>", style, words);
  };
  flag(point && is_advisory(*point), "doubt", "advisory");
  flag(stale, "doubt", "stale");
  flag(any_variant(experiment, is_only_invalid), "void", "invalid inside");
  flag(any_variant(experiment, has_failed), "bad", "failed inside");
  return out;
}

// What a row sorts by: attributes with numbers, or none where there is no value.
std::string sort_keys(const VariantRecord* best, const VariantRecord* shown) {
  std::string out;
  if (best) out += fmt::format(" data-gain=\"{:.6g}\"", best->ratio->median);
  if (shown && shown->share_of_limit && std::isfinite(*shown->share_of_limit))
    out += fmt::format(" data-share=\"{:.6g}\"", *shown->share_of_limit);
  return out;
}

std::string row_html(const RunRecord& run, size_t number, const Scale& scale, const ReportContext& context) {
  const ExperimentRecord& experiment = run.experiments[number];
  const PointRecord* point           = headline_point(experiment);
  const VariantRecord* best          = point ? best_of(*point) : nullptr;
  const VariantRecord* shown         = best ? best : point ? baseline_of(*point) : nullptr;
  const bool stale                   = is_stale(experiment, context);
  const std::string chapter          = chapter_of(experiment.id);
  std::string at                     = point ? point_text(point->at) : "";
  if (experiment.points.size() > 1) at += fmt::format(" (of {} points)", experiment.points.size());

  std::string out = fmt::format(
      "<details class=\"row\" id=\"e{}\" data-id=\"{}\" data-chapter=\"{}\" data-verdict=\"{}\" "
      "data-technique=\"{}\" data-text=\"{}\"{}>\n<summary title=\"{}\">",
      number, escape(experiment.id), escape(chapter), escape(joined(tags_of(experiment, best, stale), "|")),
      escape(joined(techniques_of(experiment), "|")), escape(search_text(experiment)), sort_keys(best, shown),
      escape(experiment.question));
  out += fmt::format("<span class=\"c-name\"><span class=\"id\">{}</span><small>{}</small></span>",
                     escape(experiment.id), escape(at));
  if (best) {
    const Ratio& r         = *best->ratio;
    const VerdictLook look = look_of(*best);
    out += fmt::format(
        "<span class=\"c-best\">{}{}</span><span class=\"c-gain\"><b>{}</b><small>{}</small></span><span "
        "class=\"c-bar\">{}</span><span class=\"c-verdict verdict {}\">{}</span>{}<span "
        "class=\"c-held\">{}</span>",
        escape(best->id), best->kind == "engine" ? "<small>the engine's op</small>" : "",
        ratio_text(r.median), ratio_interval_text(r.median, r.lo, r.hi), interval_bar(scale, best),
        look.style, look.words, share_html(best), predictions_text(*point));
  } else {
    out += fmt::format("<span class=\"c-why\">no valid ratio: {}</span>{}",
                       escape(why_no_best(experiment, point)), share_html(shown));
  }
  out += fmt::format("<span class=\"c-flags\">{}</span></summary>\n", flags_html(experiment, point, stale));
  return out + experiment_panel(run, number, context) + "</details>\n";
}

// <select> of what the rows have; hidden until the page's script, which reads `name`, runs.
std::string select_html(std::string_view name, std::string_view all, const std::map<std::string, int>& counts,
                        std::string (*title)(const std::string&)) {
  std::string options = fmt::format("<option value=\"\">{}</option>", all);
  for (const auto& [value, count] : counts)
    options +=
        fmt::format("<option value=\"{}\">{} ({})</option>", escape(value), escape(title(value)), count);
  return fmt::format("<select name=\"{0}\" aria-label=\"{0}\">{1}</select>\n", name, options);
}

std::string toolbar(const RunRecord& run, const ReportContext& context) {
  std::map<std::string, int> chapters, verdicts, techniques;
  int rows = 0;
  for (const ExperimentRecord& experiment : run.experiments) {
    if (was_skipped(experiment)) continue;
    ++rows;
    const PointRecord* point = headline_point(experiment);
    ++chapters[chapter_of(experiment.id)];
    for (const std::string& tag :
         tags_of(experiment, point ? best_of(*point) : nullptr, is_stale(experiment, context)))
      ++verdicts[tag];
    for (const std::string& technique : techniques_of(experiment)) ++techniques[technique];
  }
  const auto same = [](const std::string& text) { return text; };
  return "<form class=\"toolbar\" hidden>\n<input type=\"search\" name=\"text\" placeholder=\"Search (press "
         "/)\" "
         "aria-label=\"text\" autocomplete=\"off\">\n" +
         select_html("chapter", "all chapters", chapters, chapter_title) +
         select_html("verdict", "all verdicts", verdicts, same) +
         select_html("technique", "all techniques", techniques, same) +
         fmt::format(
             "<output>{} experiments</output>\n<button type=\"button\" name=\"open\">Open "
             "all</button>\n<span class=\"keys\"><kbd>j</kbd> <kbd>k</kbd> move, <kbd>Enter</kbd> opens, "
             "<kbd>Esc</kbd> clears</span>\n</form>\n",
             rows);
}

}  // namespace

std::string results_table(const RunRecord& run, const ReportContext& context) {
  std::vector<Ratio> ratios;
  size_t rows = 0;
  for (const ExperimentRecord& experiment : run.experiments) {
    rows += was_skipped(experiment) ? 0 : 1;
    const PointRecord* point = headline_point(experiment);
    if (const VariantRecord* best = point ? best_of(*point) : nullptr) ratios.push_back(*best->ratio);
  }
  if (rows == 0) return "";
  const Scale scale = ratio_scale(ratios);
  std::string out =
      "<h2 id=\"results\">Results</h2>\n<p class=\"small broad\">The best variant of each experiment against "
      "its "
      "baseline, with the 95 % interval of the paired ratio; above 1× is faster. A row opens into its panel. "
      "Where an experiment has several points, the first is shown.</p>\n" +
      toolbar(run, context) +
      fmt::format(
          "<div class=\"results\">\n<div class=\"head\"><span class=\"c-name\" "
          "data-sort=\"id\">Experiment</span>"
          "<span class=\"c-best\">Best variant</span><span class=\"c-gain\" "
          "data-sort=\"gain\">Speed-up</span>"
          "<span class=\"c-bar\">{}</span><span class=\"c-verdict\" "
          "data-sort=\"verdict\">Verdict</span><span "
          "class=\"c-share\" data-sort=\"share\">Share of limit</span><span "
          "class=\"c-held\">Predicted</span><span "
          "class=\"c-flags\"></span></div>\n<div class=\"rows\">\n",
          interval_axis(scale, 5));
  for (size_t e = 0; e < run.experiments.size(); ++e)
    if (!was_skipped(run.experiments[e])) out += row_html(run, e, scale, context);
  return out + "</div>\n<p class=\"no-match\" hidden>No experiment matches.</p>\n</div>\n";
}

}  // namespace fathom::report
