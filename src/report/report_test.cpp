#include "report/report.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "lab/target.h"
#include "report/doubts.h"
#include "report/report_fixture.h"

namespace fathom::report {

using namespace lab;

namespace {

// Every element that is opened is closed, in order; void elements and <... /> apart. Text holds no bare '<'
// or '>'.
testing::AssertionResult well_nested(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end       = html.find('>', at);
    const bool closes      = html[at + 1] == '/';
    const size_t from      = at + (closes ? 2 : 1);
    const std::string name = html.substr(from, html.find_first_of(" />", from) - from);
    if (end == std::string::npos) return testing::AssertionFailure() << "<" << name << " has no end";
    if (name == "!DOCTYPE" || name == "meta" || name == "link" || name == "br" || name == "input" ||
        html[end - 1] == '/')
      continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return testing::AssertionFailure()
             << "</" << name << "> closes " << (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  if (!open.empty()) return testing::AssertionFailure() << open.back() << " is never closed";
  return testing::AssertionSuccess();
}

// The page without what its script and style say.
std::string without_code(std::string html) {
  for (const char* tag : {"style", "script"}) {
    const size_t begin = html.find(std::string("<") + tag + ">"),
                 end   = html.find(std::string("</") + tag + ">");
    if (begin != std::string::npos) html.erase(begin, end + 3 + std::string(tag).size() - begin);
  }
  return html;
}

testing::AssertionResult is_page(const std::string& page) {
  const std::string html = without_code(page);
  if (const auto nested = well_nested(html); !nested) return nested;
  for (const char* forbidden :
       {"<script", "<style", "http://", "https://", ">nan", "\"nan", " nan", ">inf<", "nan%", "url("})
    if (html.find(forbidden) != std::string::npos)
      return testing::AssertionFailure() << "holds " << forbidden;
  return testing::AssertionSuccess();
}

// From the row of an experiment to the next one.
std::string row_of(const std::string& html, const std::string& id) {
  const size_t at    = html.find("data-id=\"" + id + "\"");
  const size_t begin = html.rfind("<details class=\"row\"", at);
  if (at == std::string::npos || begin == std::string::npos) return "";
  return html.substr(begin, html.find("<details class=\"row\"", at) - begin);
}

bool holds(const std::string& html, const std::string& text) { return html.find(text) != std::string::npos; }

TEST(Report, TellsOfEveryOutcome) {
  const std::string html = report_html(fixture_run(), fixture_context());
  EXPECT_TRUE(is_page(html));
  for (const char* text : {"▲ FASTER",
                           "▼ SLOWER",
                           "= SAME",
                           "? INCONCLUSIVE",
                           "✕ INVALID",
                           ">advisory<",
                           "geometric mean of the best speed-ups of 6",
                           "<code>needs_cuda</code> <b>1 experiment</b>",
                           "<li>ch07/transpose_gpu</li>",
                           "An invented CPU @ 2.4 GHz, 2 cores (fixture-2c)",
                           "1 invalid, 3 failed, 1 unreliable, 1 stale: see Warnings",
                           "868 µs is below the floor of 1.12 ms",
                           "wrong output",
                           "crashed",
                           "ran out of time",
                           "Install libdnnl.so.3",
                           "avx512f",
                           "✓ held",
                           "✗ failed",
                           "stopped at the cap on time",
                           "0123456789abcdef",
                           "machine.caches.L2",
                           "no raw samples in this record"})
    EXPECT_TRUE(holds(html, text)) << text;
}

TEST(Report, EscapesWhatTheRecordSays) {
  RunRecord run          = fixture_run();
  const std::string evil = "<img src=x onerror=\"alert('1')\">&";
  run.label = run.machine = evil;
  run.manifest            = R"({"<img>": "<img>"})";
  for (ExperimentRecord& experiment : run.experiments) {
    experiment.id = experiment.question = experiment.detail = evil;
    experiment.catalog                                      = {evil};
    for (PointRecord& point : experiment.points) {
      point.at    = Point({{evil, evil}});
      point.limit = point.cache = point.stopped = evil;
      point.noise                               = {{evil, 1}};
      for (VariantRecord& v : point.variants) {
        v.id = v.kind = v.idea = v.library = v.detail = evil;
        v.caught_by                                   = evil;
        v.techniques                                  = {evil};
        v.metrics                                     = {{evil, {1, "higher"}}};
        if (v.skip) v.skip = Skip{evil, evil};
        if (v.prediction) v.prediction->text = evil;
      }
    }
  }
  ReportContext context{.roofs      = {.memory = {{evil, 1e9}}, .compute = {{evil, 1e9}}, .measured = evil},
                        .source_now = {},
                        .texts      = {{{evil, {evil, {{evil, evil, evil}, {evil + "2", evil + "2", ""}}}}}},
                        .reference  = Reference{evil, {{evil, {evil, evil, evil, evil}}}, *compare(run, run)},
                        .diagnoses  = {{result_id(evil, evil, Point({{evil, evil}})), evil}}};
  const std::string html = report_html(run, context);
  EXPECT_TRUE(is_page(html));
  EXPECT_FALSE(holds(html, "<img"));
  const std::string index = index_html({summary_of(run, "\"><img>")});
  EXPECT_TRUE(is_page(index));
  EXPECT_FALSE(holds(index, "<img"));
}

TEST(Report, SaysWhatLimitsTheBaselineAndTheBest) {
  const std::string html = report_html(fixture_run(), fixture_context());
  EXPECT_TRUE(holds(html, "<span class=\"mono\">naive</span>: one line of 64 bytes a number (likely).</li>"));
  EXPECT_TRUE(holds(html, "fathom diagnose ch07/transpose_cpu</span>"));
  EXPECT_FALSE(holds(html, "of neither")) << "neither the baseline nor the best";
  ReportContext context = fixture_context();
  context.diagnoses.clear();
  EXPECT_FALSE(holds(report_html(fixture_run(), context), "What limits them"));
}

TEST(Report, StandsForAnEmptyRunAndARunOfSkips) {
  EXPECT_TRUE(is_page(report_html({})));
  EXPECT_TRUE(holds(report_html({}), "no experiment"));
  RunRecord run;
  for (const char* id : {"ch07/a_gpu", "ch07/b_gpu"}) {
    ExperimentRecord experiment;
    experiment.id     = id;
    experiment.status = Outcome::skipped;
    experiment.skip   = Skip{"needs_cuda", ""};
    run.experiments.push_back(experiment);
  }
  const std::string html = report_html(run, fixture_context());
  EXPECT_TRUE(is_page(html));
  EXPECT_TRUE(holds(html, "No experiment has a valid ratio"));
  EXPECT_TRUE(holds(html, "<code>needs_cuda</code> <b>2 experiments</b>")) << "one line for the reason";
  EXPECT_FALSE(holds(html, "class=\"row\""));
  EXPECT_FALSE(holds(html, "measured</dd>")) << "nothing was measured, so there is no evidence";
  EXPECT_FALSE(holds(html, "class=\"plot\"") || holds(html, "<svg"))
      << "nothing was measured, so nothing is drawn";
}

TEST(Report, NeverPrintsWhatIsNotANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, 0.0, -1.0}) {
    RunRecord run = fixture_run();
    for (ExperimentRecord& experiment : run.experiments) {
      experiment.seconds = bad;
      for (PointRecord& point : experiment.points) {
        point.floor_ns = bad;
        point.aa       = AaControl{bad, bad, false};
        point.noise    = {{"steal_ms", bad}};
        for (VariantRecord& v : point.variants) {
          v.time_ns        = Spread{bad, bad, bad, bad, bad, bad, bad, bad};
          v.ratio          = Ratio{bad, bad, bad};
          v.share_of_limit = bad;
          v.checked        = Checked{1, 1, bad, bad};
          v.metrics        = {{"m", {bad, "lower"}}};
          v.flops          = bad;
        }
      }
    }
    ReportContext context = fixture_context();
    context.roofs         = {.memory = {{"m", bad}}, .compute = {{"c", bad}}, .measured = ""};
    EXPECT_TRUE(is_page(report_html(run, context))) << bad;
  }
}

TEST(Report, MarksAsStaleOnlyWhatChanged) {
  const RunRecord run = fixture_run();
  const auto& id      = run.experiments[0].id;
  const auto stale    = [](const std::string& html) { return holds(html, ">stale<"); };
  ReportContext context;
  EXPECT_FALSE(stale(report_html(run, context)));
  context.source_now = {{id, run.experiments[0].source_hash}, {"ch99/other", "x"}};
  EXPECT_FALSE(stale(report_html(run, context)));
  context.source_now[id] = "changed";
  EXPECT_TRUE(stale(row_of(report_html(run, context), id)));
}

TEST(Report, ShowsTheExperimentsOfAGroupSideBySide) {
  RunRecord run = fixture_run();
  EXPECT_FALSE(holds(report_html(run), "id=\"groups\""));
  run.experiments[0].group = "<same>";
  EXPECT_FALSE(holds(report_html(run), "id=\"groups\"")) << "one experiment is no group";
  for (ExperimentRecord& experiment : run.experiments) experiment.group = "<same>";
  const std::string html = report_html(run, fixture_context());
  EXPECT_TRUE(is_page(html));
  const size_t begin        = html.find("id=\"groups\"");
  const size_t end          = html.find("<h2", begin);
  const std::string section = html.substr(begin, end - begin);
  EXPECT_TRUE(holds(section, "The same work: &lt;same&gt;."));
  for (size_t i = 0; i < run.experiments.size(); ++i) {
    EXPECT_TRUE(holds(section, ">" + run.experiments[i].id + "<")) << run.experiments[i].id;
    EXPECT_EQ(holds(section, "href=\"#e" + std::to_string(i) + "\""), !was_skipped(run.experiments[i]))
        << "a link leads to a row, and what was skipped as a whole has none";
  }
}

TEST(Report, ARowOpensIntoEverythingThatIsKnown) {
  const std::string row = row_of(report_html(fixture_run(), fixture_context()), "ch07/transpose_cpu");
  for (const char* text :
       {"What does a transpose cost when stride", "class=\"ladder stack\"",
        "Samples of ch07/transpose_cpu?n=8192", "Under the roofline", "share ≥ 0.5 → 0.56",
        "n=1024",  // the other point
        "Against results/fixture-2c, written 2026-04-01 00:00 UTC at commit fedcba987654", "1.20×", "FASTER",
        "the same within 2 %", "naive → blocked", "−1 +1 lines", "<del>-   rows(); ",
        "<ins>+   blocks&lt;16&gt;();</ins>", "shares transpose_cpu/blocked.cpp with blocked",
        "is the engine's op, src/kernels/norm/transpose.cpp", "<b>Question.</b>",
        "<li><code>blocked</code>: 16 x 16 blocks</li>"})
    EXPECT_TRUE(holds(row, text)) << text;
  EXPECT_FALSE(holds(row, "<h6>transpose_cpu</h6>")) << "the title repeats the row";
}

TEST(Report, APanelSaysWhatIsNotAtHand) {
  const std::string row = row_of(report_html(fixture_run()), "ch07/transpose_cpu");
  for (const char* text : {"No reference records are at hand.", "The source tree is not here",
                           "No ceilings of this machine are known", "No place under a roofline"})
    EXPECT_EQ(holds(row, text), std::string(text) != "No ceilings of this machine are known") << text;
  ReportContext context   = fixture_context();
  const std::string other = row_of(report_html(fixture_run(), context), "ch09/matmul_cpu");
  EXPECT_TRUE(holds(other, "No reference record under results/fixture-2c."));
  EXPECT_TRUE(holds(other, "No two variants have files of their own."));
  EXPECT_TRUE(holds(other, "Under the measured ceilings"));
}

TEST(Report, TheCountersOfAProfiledRunAreInThePanel) {
  RunRecord run          = fixture_run();
  VariantRecord& variant = run.experiments[1].points[1].variants[2];
  variant.metrics        = {{"registers_per_thread", {40, "lower"}},
                            {"kernel_time_ns", {2.5e6, "lower"}},
                            {"counted_dram_bytes_read", {134217728, "lower"}}};
  const std::string row  = row_of(report_html(run), "ch07/transpose_cpu");
  EXPECT_TRUE(holds(row, "Metrics and counters"));
  EXPECT_TRUE(holds(row, "registers per thread</th><td class=\"num\">40</td>")) << row.substr(0, 200);
  EXPECT_TRUE(holds(row, "kernel time</th><td class=\"num\">2.50 ms</td>"));
  EXPECT_TRUE(holds(row, "counted dram bytes read</th><td class=\"num\">134")) << row.substr(0, 200);
}

// A variant of the panel's point with these loads of experts, and a metric without a number.
RunRecord run_with_loads(const std::vector<double>& loads) {
  RunRecord run = fixture_run();
  for (VariantRecord& variant : run.experiments[1].points[1].variants) {
    variant.metrics = {{"rank_imbalance", {1.25, "lower"}}};
    for (size_t e = 0; e < loads.size(); ++e)
      variant.metrics["tokens_of_expert_0" + std::to_string(e)] = {loads[e], "lower"};
  }
  return run;
}

TEST(Report, NumberedMetricsAreAChartWithTheirVariance) {
  const std::string row = row_of(report_html(run_with_loads({30, 10, 0, 0})), "ch07/transpose_cpu");
  // Mean 10; (400 + 0 + 100 + 100) / 4 over 100.
  EXPECT_TRUE(holds(row, ">variance 1.5<"));
  EXPECT_TRUE(holds(row, "tokens of expert 00: 30<"));
  EXPECT_FALSE(holds(row, "tokens of expert 00</th>")) << "drawn, and in the table too";
  EXPECT_TRUE(holds(row, "rank imbalance</th>"));
  EXPECT_TRUE(is_page(report_html(run_with_loads({30, 10, 0, 0}))));

  EXPECT_TRUE(holds(report_html(run_with_loads({7, 7, 7, 7, 7})), ">variance 0<"));
}

TEST(Report, MetricsThatAreNoSeriesStayInTheTable) {
  const auto in_table = [](const RunRecord& run) {
    const std::string html = report_html(run);
    EXPECT_TRUE(is_page(html));
    EXPECT_FALSE(holds(html, ">variance"));
    return holds(row_of(html, "ch07/transpose_cpu"), "tokens of expert 00</th>");
  };
  EXPECT_TRUE(in_table(run_with_loads({3, 1, 2})));  // too few to draw
  EXPECT_TRUE(in_table(run_with_loads({0, 0, 0, 0})));
  EXPECT_TRUE(in_table(run_with_loads({1, 2, 3, std::numeric_limits<double>::quiet_NaN()})));
  RunRecord gap = run_with_loads({1, 2, 3, 4, 5});
  for (VariantRecord& variant : gap.experiments[1].points[1].variants)
    variant.metrics.erase("tokens_of_expert_02");
  EXPECT_TRUE(in_table(gap));
  EXPECT_FALSE(in_table(run_with_loads({})));
}

TEST(Report, SkipsAreOneLineAReason) {
  RunRecord run = fixture_run();
  for (int i = 0; i < 30; ++i) {
    ExperimentRecord gpu = run.experiments.back();
    gpu.id += std::to_string(i);
    gpu.skip = Skip{"needs_memory", std::to_string(i) + " GiB"};
    run.experiments.push_back(gpu);
  }
  const std::string html = report_html(run);
  EXPECT_TRUE(holds(html, "<code>needs_memory</code> <b>30 experiments</b>"));
  EXPECT_TRUE(holds(html, "and 26 more"));
  size_t lines = 0;
  for (size_t at = html.find("class=\"skip\"><summary><code>"); at != std::string::npos;
       at        = html.find("class=\"skip\"><summary><code>", at + 1))
    ++lines;
  EXPECT_EQ(lines, 4u) << "needs_cuda, needs_feature, needs_library, needs_memory";
}

TEST(Report, AVariantThatTimedOutFailedAndIsNotInvalidToo) {
  RunRecord run     = fixture_run();
  run.experiments   = {run.experiments[0]};
  VariantRecord& v  = run.experiments[0].points[1].variants[1];
  v.status          = Outcome::timeout;
  v.verdict         = "INVALID";
  const auto counts = doubts_of(run, {});
  EXPECT_EQ(counts.failed, 1);
  EXPECT_EQ(counts.invalid, 0);
  EXPECT_TRUE(holds(report_html(run), "1 failed: see Warnings"));
}

TEST(Report, ShowsAManifestThatIsNoJsonAsItIs) {
  RunRecord run = fixture_run();
  run.manifest  = "{torn <in> half";
  EXPECT_TRUE(holds(report_html(run), "{torn &lt;in&gt; half"));
}

TEST(Index, ListsRunsNewestFirstWithTheirBestSpeedUps) {
  RunRecord older = fixture_run(), newer = fixture_run();
  older.started = "2026-01-01T00:00:00Z";
  older.label   = "older";
  newer.label   = "newer";
  for (ExperimentRecord& experiment : newer.experiments)
    for (PointRecord& point : experiment.points) point.noise["power_w"] = 651.7;
  const RunSummary summary = summary_of(newer, "b/report.html");
  ASSERT_EQ(summary.best.size(), 3u);
  EXPECT_GT(summary.best[0].ratio.median, summary.best[1].ratio.median);
  for (const auto& best : summary.best) {
    EXPECT_FALSE(best.id.starts_with("ch03/huge_pages")) << "advisory";
    EXPECT_NE(best.variant, "skips_half") << "invalid";
  }
  const std::string html = index_html({summary_of(older, "a/report.html"), summary});
  EXPECT_TRUE(is_page(html));
  EXPECT_LT(html.find("b/report.html"), html.find("a/report.html"));
  // Only the newer run's machine said what it drew.
  EXPECT_LT(html.rfind("652 W"), html.find("a/report.html"));
  EXPECT_TRUE(holds(html, "href=\"b/report.html#skipped\""));
  EXPECT_TRUE(is_page(index_html({})));
}

}  // namespace
}  // namespace fathom::report
