#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/quantity.h"
#include "report/doubts.h"
#include "report/first_screen.h"
#include "report/group_table.h"
#include "report/page_frame.h"
#include "report/report_style.h"
#include "report/results_table.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string scalar_text(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_null()) return std::string(kAbsent);
  return json.dump();
}

// Nested members as "machine.cpu.model"; a list of scalars is one row.
void flatten(const nlohmann::json& json, const std::string& name, std::string& rows) {
  const bool nested = json.is_object() ||
                      (json.is_array() && std::any_of(json.begin(), json.end(),
                                                      [](const auto& item) { return item.is_structured(); }));
  if (nested) {
    for (const auto& [key, value] : json.items()) flatten(value, name.empty() ? key : name + "." + key, rows);
    return;
  }
  std::string text;
  if (json.is_array())
    for (const auto& item : json) text += (text.empty() ? "" : ", ") + scalar_text(item);
  else
    text = scalar_text(json);
  rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(name),
                      text.empty() ? std::string(kAbsent) : escape(text));
}

std::string roofline_section(const RunRecord& run, const Roofs& roofs) {
  const auto points = roofline_points(run, roofs);
  if (points.empty()) return "";
  const bool measured = !roofs.memory.empty() || !roofs.compute.empty();
  const bool broken   = std::any_of(points.begin(), points.end(), [](const RooflinePoint& p) {
    return p.invalid && p.attainable && p.flops_per_s > *p.attainable;
  });
  return fmt::format(
      "<h2 id=\"limits\">Roofline</h2>\n<figure><figcaption>{} An arrow goes from the baseline to the best "
      "variant; intensity is from the declared bytes and flops.{}</figcaption>\n<div class=\"scroll wide\" "
      "role=\"region\" "
      "aria-label=\"Roofline\" tabindex=\"0\">{}</div></figure>\n",
      measured
          ? escape(fmt::format("Roofs are measured ceilings{}.",
                               roofs.measured.empty() ? "" : " (" + roofs.measured + ")"))
          : "No ceilings of this machine were measured, so there are no roofs: run <code>fathom roofline "
            "--calibrate</code>.",
      broken ? " A point above every roof is INVALID: its time or its declared cost is wrong, or the "
               "ceilings are "
               "too low and have to be measured again."
             : "",
      roofline_svg(roofs, points, SvgFor::page));
}

// Links to the sections that the page has.
std::string contents(const std::string& page) {
  std::string out = "<nav class=\"contents\" aria-label=\"Contents\">\n<a href=\"#top\">Summary</a>\n";
  for (const auto& [id, name] : {std::pair{"results", "Results"}, std::pair{"failed", "Failed"},
                                 std::pair{"groups", "Groups"}, std::pair{"limits", "Roofline"},
                                 std::pair{"skipped", "Not run"}, std::pair{"environment", "Environment"}})
    if (page.find(fmt::format("<h2 id=\"{}\"", id)) != std::string::npos)
      out += fmt::format("<a href=\"#{}\">{}</a>\n", id, name);
  return out + "</nav>\n";
}

std::string environment(const RunRecord& run, const nlohmann::json& manifest) {
  std::string out = "<h2 id=\"environment\">Environment</h2>\n";
  if (manifest.is_discarded() || !manifest.is_object() || manifest.empty())
    return out + (run.manifest.empty()
                      ? "<p>The record holds no manifest.</p>\n"
                      : fmt::format("<p>The manifest is not a JSON object:</p><pre>{}</pre>\n",
                                    escape(run.manifest)));
  std::string rows;
  flatten(manifest, "", rows);
  return out +
         "<details class=\"skip\"><summary>The manifest of this run: arguments, compiler, "
         "machine.</summary>\n<table class=\"environment\">\n<tbody>\n" +
         rows + "</tbody></table></details>\n";
}

}  // namespace

std::string report_html(const RunRecord& run, const ReportContext& context) {
  const nlohmann::json manifest = nlohmann::json::parse(run.manifest, nullptr, /*allow_exceptions=*/false);
  const std::string body = report_header(run, manifest, context) + "<main>\n" + first_screen(run, context) +
                           results_table(run, context) + failures_html(run) + groups_html(run) +
                           roofline_section(run, context.roofs) + skips_html(run) +
                           environment(run, manifest);
  return page_head(fmt::format("Fathom report {}", run.label), report_style()) + contents(body) + body +
         fmt::format(
             "</main>\n<footer>Written by fathom from {} of {}. Times are of one call. Ratios are paired: "
             "every "
             "round runs all variants, in changing order.</footer>\n<script>{}</script>\n",
             escape(run.schema), escape(date_text(run.started)), report_script()) +
         page_foot();
}

}  // namespace fathom::report
