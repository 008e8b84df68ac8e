#include "report/doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string link_to(const RunRecord& run, size_t experiment) {
  return fmt::format("<a href=\"#e{}\">{}</a>", experiment, escape(run.experiments[experiment].id));
}

// "3 invalid times: ch07/a, ch09/b and 1 more". Counts results; names each experiment once.
std::string doubt_line(const RunRecord& run, std::string_view style, std::string_view sign,
                       std::string_view what, std::string_view why,
                       const std::function<int(const ExperimentRecord&)>& count) {
  constexpr size_t kNamed = 3;
  int total               = 0;
  std::vector<size_t> where;
  for (size_t e = 0; e < run.experiments.size(); ++e)
    if (const int found = count(run.experiments[e]); found > 0) {
      total += found;
      where.push_back(e);
    }
  if (total == 0) return "";
  std::string names;
  for (size_t i = 0; i < std::min(where.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + link_to(run, where[i]);
  if (where.size() > kNamed) names += fmt::format(" and {} more", where.size() - kNamed);
  return fmt::format("<li><b class=\"{}\">{} {} {}</b> <span>{}</span> {}</li>\n", style, sign, total, what,
                     why, names);
}

int count_variants(const ExperimentRecord& experiment, const std::function<bool(const VariantRecord&)>& is) {
  int count = 0;
  for (const PointRecord& point : experiment.points)
    count += static_cast<int>(std::count_if(point.variants.begin(), point.variants.end(), is));
  return count;
}

// What failed is not counted as invalid too, although its verdict may say so.
bool counts_as_invalid(const VariantRecord& v) { return is_invalid(v) && !is_failed(v.status); }

int invalid_in(const ExperimentRecord& e) {
  return count_variants(e, counts_as_invalid) + (e.points.empty() && e.status == Outcome::invalid ? 1 : 0);
}

int failed_in(const ExperimentRecord& e) {
  return count_variants(e, [](const VariantRecord& v) { return is_failed(v.status); }) +
         (e.points.empty() && is_failed(e.status) ? 1 : 0);
}

int above_limit_in(const ExperimentRecord& e) { return count_variants(e, is_above_limit); }

int advisory_in(const ExperimentRecord& e) {
  return static_cast<int>(std::count_if(e.points.begin(), e.points.end(), is_advisory));
}

}  // namespace

std::string remedy(const Skip& skip) {
  const std::string need = skip.need.empty() ? "what it needs" : skip.need;
  if (need.find(": ") != std::string::npos) return need + ".";  // says it in a sentence of its own
  if (skip.reason == "needs_cuda") return "Run a build with CUDA on a machine with an NVIDIA GPU.";
  if (skip.reason == "needs_feature") return fmt::format("Run on a machine that has {}.", need);
  if (skip.reason == "needs_gpus") return fmt::format("Run on a machine with {}.", need);
  if (skip.reason == "needs_library") return fmt::format("Install {} where the loader finds it.", need);
  if (skip.reason == "needs_memory") return fmt::format("Run where {} of memory is free.", need);
  if (skip.reason == "needs_permission") return fmt::format("Grant {}.", need);
  if (skip.reason == "needs_model") return fmt::format("Provide the model: {}.", need);
  if (skip.reason == "beyond_up_to") return fmt::format("Not an error: this variant supports {} only.", need);
  return fmt::format("Provide {}.", need);
}

std::string outcome_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::skipped:
      return "skipped";
    case Outcome::wrong:
      return "wrong output";
    case Outcome::invalid:
      return "invalid measurement";
    case Outcome::crashed:
      return "crashed";
    case Outcome::timeout:
      return "ran out of time";
    case Outcome::oom:
      return "ran out of memory";
  }
  return "unknown";
}

std::string skip_words(const std::optional<Skip>& skip) {
  if (!skip) return "no reason recorded";
  return skip->reason + (skip->need.empty() ? "" : ", " + skip->need);
}

std::string why_text(const VariantRecord& variant) {
  std::string out;
  if (variant.caught_by) out = "caught by " + *variant.caught_by;
  for (const std::string& more : {variant.invalid_reason.value_or(""), variant.detail})
    if (!more.empty() && out.find(more) == std::string::npos) out += (out.empty() ? "" : ": ") + more;
  return out;
}

bool is_stale(const ExperimentRecord& experiment, const ReportContext& context) {
  const auto now = context.source_now.find(experiment.id);
  return now != context.source_now.end() && now->second != experiment.source_hash;
}

DoubtCounts doubts_of(const RunRecord& run, const ReportContext& context) {
  DoubtCounts counts;
  for (const ExperimentRecord& e : run.experiments) {
    counts.invalid += invalid_in(e);
    counts.failed += failed_in(e);
    counts.advisory += advisory_in(e);
    counts.stale += is_stale(e, context) ? 1 : 0;
    counts.above_limit += above_limit_in(e);
  }
  return counts;
}

std::string doubts_html(const RunRecord& run, const ReportContext& context) {
  std::string lines =
      doubt_line(run, "void", "✕", "invalid", "faster than the work allows, or caught:", invalid_in) +
      doubt_line(run, "bad", "✕", "failed", "wrong output, a crash, or out of time or memory:", failed_in) +
      doubt_line(run, "doubt", "⚠", "advisory",
                 "points where the baseline differed from itself:", advisory_in) +
      doubt_line(run, "doubt", "⚠", "stale", "the source changed since it was measured:",
                 [&](const ExperimentRecord& e) { return is_stale(e, context) ? 1 : 0; }) +
      doubt_line(run, "doubt", "⚠", "above the limit",
                 "faster than the ceiling kernel that says what can be reached:", above_limit_in);
  lines += doubt_line(run, "doubt", "?", "inconclusive",
                      "the interval reaches across the margin of 2 %:", [](const ExperimentRecord& e) {
                        return count_variants(e, [](const VariantRecord& v) {
                          return is_valid(v) && v.verdict == "INCONCLUSIVE";
                        });
                      });
  if (lines.empty() && !run.experiments.empty())
    lines = "<li>Nothing was invalid, failed, advisory, stale or inconclusive.</li>\n";
  return lines.empty() ? "" : "<ul class=\"doubts\">\n" + lines + "</ul>\n";
}

std::string failures_html(const RunRecord& run) {
  std::string rows;
  int count      = 0;
  const auto row = [&](size_t experiment, const std::string& id, Outcome status, const std::string& by,
                       const std::string& detail) {
    ++count;
    rows += fmt::format(
        "<tr><th scope=\"row\" class=\"mono\"><a href=\"#e{}\">{}</a></th><td class=\"{}\">✕ {}</td><td "
        "class=\"mono\" data-name=\"caught by\">{}</td><td>{}</td></tr>\n",
        experiment, escape(id), status == Outcome::invalid ? "void" : "bad", outcome_word(status),
        by.empty() ? std::string(kAbsent) : escape(by),
        detail.empty() ? std::string(kAbsent) : escape(detail));
  };
  for (size_t e = 0; e < run.experiments.size(); ++e) {
    const ExperimentRecord& experiment = run.experiments[e];
    if (experiment.points.empty() && experiment.status != Outcome::ok &&
        experiment.status != Outcome::skipped)
      row(e, experiment.id, experiment.status, "", experiment.detail);
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& v : point.variants) {
        if (is_valid(v) || v.status == Outcome::skipped) continue;
        const std::string detail = v.invalid_reason && v.detail.find(*v.invalid_reason) == std::string::npos
                                       ? *v.invalid_reason + (v.detail.empty() ? "" : ": " + v.detail)
                                       : v.detail;
        row(e, id_at(experiment, point, v.id), counts_as_invalid(v) ? Outcome::invalid : v.status,
            v.caught_by.value_or(""), detail);
      }
  }
  if (rows.empty()) return "";
  const std::string table = scroll_box(
      "What failed",
      "<table class=\"stack rows\">\n<caption>Variants whose numbers count for nothing, and why.</caption>\n"
      "<thead><tr><th scope=\"col\">Variant</th><th scope=\"col\">Outcome</th><th scope=\"col\">Caught "
      "by</th><th scope=\"col\">What happened</th></tr></thead>\n<tbody>\n" +
          rows + "</tbody></table>\n");
  constexpr int kMostShown = 8;  // a page with more opens them on request
  return "<h2 id=\"failed\">What failed</h2>\n" +
         (count <= kMostShown
              ? table
              : fmt::format("<details class=\"skip\"><summary><b>{}</b> variants</summary>\n{}</details>\n",
                            count, table));
}

std::string skips_html(const RunRecord& run) {
  struct Skipped {
    std::set<std::string> needs;
    size_t experiments = 0, variants = 0;
    std::string list;
  };
  std::map<std::string, Skipped> skips;  // by reason
  const auto add = [&](const std::optional<Skip>& skip, const std::string& id, size_t Skipped::*kind) {
    Skipped& entry = skips[skip ? skip->reason : "no reason recorded"];
    if (skip && !skip->need.empty()) entry.needs.insert(skip->need);
    ++(entry.*kind);
    entry.list += fmt::format("<li>{}{}</li>\n", escape(id),
                              skip && !skip->need.empty() ? ": " + escape(skip->need) : "");
  };
  for (const ExperimentRecord& experiment : run.experiments) {
    if (was_skipped(experiment)) {
      const bool said = experiment.skip || experiment.points.empty() || experiment.points[0].variants.empty();
      add(said ? experiment.skip : experiment.points[0].variants[0].skip, experiment.id,
          &Skipped::experiments);
      continue;
    }
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& v : point.variants)
        if (v.status == Outcome::skipped) add(v.skip, id_at(experiment, point, v.id), &Skipped::variants);
  }
  if (skips.empty()) return "";
  std::string out = "<h2 id=\"skipped\">What did not run</h2>\n";
  for (const auto& [reason, skipped] : skips) {
    std::string counts, needs;
    for (const auto& [number, what] :
         {std::pair{skipped.experiments, "experiment"}, std::pair{skipped.variants, "variant"}})
      if (number > 0)
        counts += fmt::format("{}{} {}{}", counts.empty() ? "" : ", ", number, what, number == 1 ? "" : "s");
    size_t named = 0;
    for (const std::string& need : skipped.needs)
      if (++named <= 4) needs += (needs.empty() ? "" : "; ") + need;
    if (named > 4) needs += fmt::format(" and {} more", named - 4);
    out += fmt::format(
        "<details class=\"skip\"><summary><code>{}</code> <b>{}</b> <span>{}</span></summary>\n<ul "
        "class=\"ids mono\">\n{}</ul></details>\n",
        escape(reason), counts, reason == "no reason recorded" ? "" : escape(remedy({reason, needs})),
        skipped.list);
  }
  return out;
}

}  // namespace fathom::report
