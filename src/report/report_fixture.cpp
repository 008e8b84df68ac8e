#include "report/report_fixture.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "lab/target.h"

namespace fathom::report {

using namespace lab;

namespace {

Point at(std::vector<Point::Parameter> parameters) { return Point(std::move(parameters)); }

// Rounds of all variants share a slow drift and a few interruptions, as on a shared machine.
std::vector<double> samples(double ns, int rounds, double noise, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<double> out;
  for (int i = 0; i < rounds; ++i) {
    const double uniform = static_cast<double>(engine()) / 4294967296.0;
    const double drift   = 0.012 * std::sin(3.0 * i / rounds);
    const double spike   = engine() % 37 == 0 ? 0.15 + uniform / 3 : 0;
    out.push_back(ns * (1 + drift + spike - noise * std::log(1 - 0.99 * uniform)));
  }
  return out;
}

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n       = static_cast<double>(values.size());
  const auto ordered = [&](double rank) { return values[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  return {.median          = ordered(n / 2),
          .lo              = ordered(n / 2 - std::sqrt(n)),
          .hi              = ordered(n / 2 + std::sqrt(n)),
          .min             = values.front(),
          .p10             = ordered(n * 0.1),
          .p90             = ordered(n * 0.9),
          .mad             = (ordered(n * 0.75) - ordered(n * 0.25)) / 2,
          .autocorrelation = 0.12};
}

struct Made {
  std::string id, kind, idea;
  double ns              = 0;
  double share           = 0;  // 0: none
  int threads            = 1;
  std::string prediction = {};
  bool held              = true;
};

PointRecord point_of(Point where, const std::vector<Made>& made, int64_t bytes, double flops, int rounds,
                     double noise) {
  PointRecord point{.at               = std::move(where),
                    .cache            = "rotated",
                    .clock            = "wall",
                    .limit            = "copy bandwidth, DRAM, 2 threads",
                    .floor_ns         = made.back().ns * 0.4,
                    .baseline         = made.front().id,
                    .rounds           = rounds,
                    .calls_per_sample = 4,
                    .stopped          = "precision",
                    .aa               = AaControl{0.996, 1.005, false},
                    .noise            = {{"steal_ms", 12.0}, {"involuntary_switches", 31}},
                    .variants         = {}};
  uint32_t seed = static_cast<uint32_t>(bytes);
  for (const Made& m : made) {
    VariantRecord v;
    v.id         = m.id;
    v.kind       = m.kind;
    v.idea       = m.idea;
    v.techniques = {m.kind == "baseline" ? "access_order" : "tiling"};
    v.threads    = m.threads;
    v.samples_ns = samples(m.ns, rounds, noise, ++seed);
    v.time_ns    = spread(v.samples_ns);
    v.bytes_read = v.bytes_written = bytes / 2;
    v.flops                        = flops;
    v.checked                      = flops > 0 ? Checked{7, 7168, 3.1e-6, 2.4e-5} : Checked{7, 7168, 0, 0};
    if (m.share > 0) v.share_of_limit = m.share;
    if (!m.prediction.empty()) v.prediction = PredictionScore{m.prediction, m.held};
    if (m.kind != "baseline") {
      const double ratio = point.variants.front().time_ns->median / v.time_ns->median;
      const double half  = 0.6 * noise;
      v.ratio            = Ratio{ratio, ratio * (1 - half), ratio * (1 + half)};
      v.verdict          = v.ratio->lo > 1.02                         ? "FASTER"
                           : v.ratio->hi < 0.98                       ? "SLOWER"
                           : v.ratio->lo > 0.98 && v.ratio->hi < 1.02 ? "SAME"
                                                                      : "INCONCLUSIVE";
    }
    point.variants.push_back(std::move(v));
  }
  return point;
}

VariantRecord skipped(const std::string& id, const std::string& kind, Skip skip) {
  VariantRecord v;
  v.id     = id;
  v.kind   = kind;
  v.idea   = "As the library does it.";
  v.status = Outcome::skipped;
  v.skip   = std::move(skip);
  return v;
}

VariantRecord ended(const std::string& id, Outcome outcome, const std::string& by,
                    const std::string& detail) {
  VariantRecord v;
  v.id     = id;
  v.kind   = "optimized";
  v.status = outcome;
  v.detail = detail;
  if (!by.empty()) v.caught_by = by;
  return v;
}

ExperimentRecord experiment(const std::string& id, const std::string& question,
                            std::vector<PointRecord> points) {
  ExperimentRecord e;
  e.id          = id;
  e.question    = question;
  e.source_hash = "5f1c";
  e.catalog     = {"tiling-007"};
  e.seconds     = 8.4;
  e.points      = std::move(points);
  return e;
}

ExperimentRecord matmul() {
  std::vector<PointRecord> points;
  for (const int64_t n : {int64_t{512}, int64_t{2048}}) {
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    const auto ns      = [&](double gflops) { return flops / gflops; };
    PointRecord p      = point_of(
             at({{"n", n}}),
             {{"naive", "baseline", "Three loops in the order of the formula.", ns(1.9), 0.017},
              {"loop_order", "optimized", "k outside j: B is read by rows.", ns(11.8), 0.11, 1, "ratio >= 4"},
              {"tiled", "optimized", "64 x 64 tiles stay in L1.", ns(17.5), 0.16, 1, "ratio 8", false},
              {"register_blocked", "optimized", "A 6 x 16 block of C lives in registers.", ns(71), 0.64, 1,
               "share >= 0.6"},
              {"packed", "optimized", "Panels copied once, in the order they are read.", ns(97), 0.88, 1,
               "share >= 0.8"},
              {"threads", "optimized", "Rows of panels split over the cores.", ns(178), 0.81, 2, "share >= 0.8"},
              {"openblas_1t", "library", "cblas_sgemm, 1 thread.", ns(103), 0.93},
              {"openblas_all", "library", "cblas_sgemm, all threads.", ns(190), 0.86, 2}},
             12 * n * n, flops, 90, 0.012);
    p.limit                  = "fp32 FMA peak, AVX2, as many threads";
    p.variants[3].techniques = {"tiling", "register_blocking"};
    p.variants.push_back(skipped("onednn_1t", "library", {"needs_library", "libdnnl.so.3"}));
    p.variants.push_back(skipped("avx512", "optimized", {"needs_feature", "avx512f"}));
    points.push_back(std::move(p));
  }
  return experiment("ch09/matmul_cpu",
                    "How close to the FMA peak does C = A B get, and which step of the ladder pays?",
                    std::move(points));
}

ExperimentRecord transpose() {
  std::vector<PointRecord> points;
  for (const int64_t n : {int64_t{1024}, int64_t{8192}}) {
    const auto bytes = static_cast<double>(8 * n * n);
    points.push_back(point_of(
        at({{"n", n}}),
        {{"naive", "baseline", "Row by row, so every store opens a new line.", bytes / 2.3, 0.13},
         {"blocked", "optimized", "16 x 16 blocks use whole lines.", bytes / 9.8, 0.56, 1, "share >= 0.5"},
         {"simd", "optimized", "8 x 8 in registers & streamed stores.", bytes / 13.6, 0.78, 1,
          "share >= 0.7"},
         {"recursive", "optimized", "Halves until it fits any cache.", bytes / 9.7, 0.55, 1, "ratio 4.5"}},
        8 * n * n, 0, 120, 0.02));
  }
  points[1].stopped = "time";
  return experiment("ch07/transpose_cpu",
                    "What does a transpose cost when stride > line, i.e. a <b>column</b> read \"by rows\"?",
                    std::move(points));
}

ExperimentRecord attention() {
  PointRecord p = point_of(
      at({{"T", int64_t{1024}}, {"Dh", int64_t{64}}}),
      {{"scores_in_memory", "baseline", "Writes T x T scores, reads them twice.", 4.1e7, 0.12},
       {"tiled_online", "optimized", "Softmax as the tiles pass by.", 9.6e6, 0.51, 1, "ratio 3", false},
       {"tiled_2t", "optimized", "Heads over threads.", 5.2e6, 0.47, 2, "ratio >= 5"}},
      1 << 20, 2.7e8, 64, 0.015);
  p.limit             = "fp32 FMA peak, AVX2, as many threads";
  VariantRecord cheat = p.variants.back();
  cheat.id            = "skips_half";
  cheat.idea          = "Computes the lower triangle only.";
  for (double& ns : cheat.samples_ns) ns /= 6;
  cheat.time_ns        = spread(cheat.samples_ns);
  cheat.ratio          = Ratio{47, 46.2, 47.9};
  cheat.status         = Outcome::invalid;
  cheat.verdict        = "INVALID";
  cheat.caught_by      = "floor";
  cheat.invalid_reason = "868 µs is below the floor of 1.12 ms";
  cheat.share_of_limit = std::nullopt;
  cheat.prediction     = std::nullopt;
  p.variants.push_back(cheat);
  return experiment("ch10/flash_attention_cpu", "What does never writing the scores save?", {p});
}

ExperimentRecord with_failures() {
  PointRecord p =
      point_of(at({{"items", int64_t{100003}}, {"skew", 0.8}}),
               {{"static_split", "baseline", "Equal counts for each thread.", 6.2e6, 0, 2},
                {"atomic_queue", "optimized", "One fetch_add an item.", 6.35e6, 0, 2, "ratio >= 1.3", false},
                {"batched_atomics", "optimized", "64 items a fetch_add.", 4.1e6, 0, 2, "ratio 1.5"}},
               1 << 22, 0, 400, 0.05);
  p.limit    = "";
  p.floor_ns = std::nullopt;
  p.stopped  = "rounds";
  p.variants.push_back(
      ended("lock_free", Outcome::wrong, "reference",
            "sum(17) is 3.25, expected 4.5; 912 of 1,024 elements of timed call 3 are wrong"));
  p.variants.push_back(
      ended("stealing", Outcome::crashed, "", "signal 11 (segmentation fault) in timed round 12"));
  p.variants.push_back(
      ended("recursive_split", Outcome::timeout, "", "no answer for 20 s in check at items=1"));
  ExperimentRecord e = experiment("ch12/work_queue_cpu", "Who should hand out uneven work?", {p});
  e.status           = Outcome::wrong;
  return e;
}

ExperimentRecord advisory() {
  PointRecord p =
      point_of(at({{"size", std::string("256M")}}),
               {{"small_pages", "baseline", "4 KiB pages.", 2.9e8, 0.34},
                {"huge_pages", "optimized", "2 MiB pages by madvise.", 1.7e8, 0.58, 1, "ratio >= 1.3"}},
               int64_t{1} << 28, 0, 40, 0.08);
  p.aa    = AaControl{1.011, 1.064, true};
  p.noise = {{"steal_ms", 431}, {"involuntary_switches", 1204}};
  return experiment("ch03/huge_pages", "What do page walks cost a random reader?", {p});
}

ExperimentRecord quiet() {
  PointRecord p =
      point_of({},
               {{"branches", "baseline", "if (x < t) sum += x.", 1.31e6, 0},
                {"predicated", "optimized", "A mask instead of the branch.", 1.306e6, 0, 1, "ratio 1"},
                {"sorted_first", "optimized", "Sorts, then branches.", 2.04e6, 0, 1, "ratio 0.6"}},
               1 << 20, 0, 60, 0.004);
  p.limit    = "";
  p.floor_ns = std::nullopt;
  for (VariantRecord& v : p.variants) {  // as a committed record: quantiles only
    v.quantiles_ns = v.samples_ns;
    std::sort(v.quantiles_ns.begin(), v.quantiles_ns.end());
    v.samples_ns.clear();
  }
  return experiment("ch08/branch_predication", "When is a mask cheaper than a branch?", {p});
}

}  // namespace

RunRecord fixture_run() {
  RunRecord run;
  run.label   = "nightly <2 cores>";
  run.started = "2026-05-02T10:00:00Z";
  run.machine = "fixture-2c";
  run.manifest =
      R"({"argv": ["fathom", "run", "--label", "nightly <2 cores>"], "commit": "0123456789abcdef0123456789abcdef01234567",
    "compiler": "g++ 12.2.0", "flags": "-O3 -g", "seed": 7, "machine": {"cpu": "An invented CPU @ 2.4 GHz", "cores": 2,
    "caches": {"L1d": "32 KiB", "L2": "1 MiB", "L3": "33 MiB"}, "virtual": true, "governor": null}})";
  run.experiments = {matmul(), transpose(), attention(), with_failures(), advisory(), quiet()};
  ExperimentRecord gpu;
  gpu.id       = "ch07/transpose_gpu";
  gpu.question = "What do bank conflicts cost, and what cures them?";
  gpu.backend  = "cuda";
  gpu.status   = Outcome::skipped;
  gpu.skip     = Skip{"needs_cuda", ""};
  run.experiments.push_back(gpu);
  return run;
}

RunRecord large_fixture_run() {
  const RunRecord model = fixture_run();
  RunRecord run         = model;
  run.experiments.clear();
  for (int i = 0; i < 205; ++i) {
    ExperimentRecord e = i < 85 ? model.experiments[static_cast<size_t>(i % 6)] : model.experiments.back();
    e.id               = "ch" + std::to_string(10 + i / 11) + "/" + e.id.substr(5) + "_" + std::to_string(i);
    if (!e.points.empty()) e.points.resize(1);
    if (i >= 85) {  // as a run on this machine records them: a point whose variants were all skipped
      e.status = Outcome::skipped;
      e.skip.reset();
      e.points = {{.at = at({{"n", int64_t{4096}}}), .baseline = "naive", .variants = {}}};
      for (const char* id : {"naive", "padded"})
        e.points[0].variants.push_back(skipped(id, "optimized", {"needs_cuda", "a GPU"}));
    }
    if (i == 3)  // a row without a ratio
      for (VariantRecord& v : e.points[0].variants)
        if (v.kind != "baseline") v = ended(v.id, Outcome::timeout, "", "still in 'warm up' after 60 s");
    if (i == 5) e.points[0].variants[1].verdict = "INCONCLUSIVE";
    e.group = i % 9 == 0 ? "same_" + std::to_string(i / 27) : "";
    run.experiments.push_back(std::move(e));
  }
  return run;
}

ReportContext fixture_context() {
  ReportContext context;
  context.roofs      = fixture_roofs();
  context.source_now = {{"ch08/branch_predication", "other"}};
  context.texts.emplace();
  for (const ExperimentRecord& e : fixture_run().experiments) (*context.texts)[e.id] = {};
  ExperimentText& text = (*context.texts)["ch07/transpose_cpu"];
  text.notes =
      "# transpose_cpu\n\n**Question.** What does `out(j, i) = in(i, j)` cost? See "
      "`a_rather_long_identifier_that_no_phone_can_hold_in_a_line_of_its_own`.\n\n- `blocked`: 16 x 16\n  "
      "blocks\n- `simd`: registers\n\n## Measured\n\n| variant | time |\n|---|---|\n| `naive` | 1 ms & "
      "more |\n\n```\nfor (i < n)\n```\n";
  const std::string head = "// out(j, i) = in(i, j)\n#include \"transpose.h\"\n\nvoid transpose() {\n";
  text.variants          = {
               {.id   = "naive",
                .file = "transpose_cpu/naive.cpp",
                .text = head + "  rows();" + std::string(60, ' ') + "// one after the other\n}\n"},
               {.id = "blocked", .file = "transpose_cpu/blocked.cpp", .text = head + "  blocks<16>();\n}\n"},
               {.id = "blocked_2t", .file = "transpose_cpu/blocked.cpp", .text = head + "  blocks<16>();\n}\n"},
               {.id = "engine", .file = "src/kernels/norm/transpose.cpp", .text = "", .is_op = true}};
  RunRecord earlier = fixture_run();
  for (ExperimentRecord& e : earlier.experiments)
    for (PointRecord& point : e.points)
      for (VariantRecord& v : point.variants)
        if (v.ratio && v.id == "simd")
          v.ratio = Ratio{v.ratio->median / 1.2, v.ratio->lo / 1.2, v.ratio->hi / 1.2};
  context.reference = Reference{.folder     = "results/fixture-2c",
                                .records    = {{"ch07/transpose_cpu",
                                                {.written_by = "me",
                                                 .written_at = "2026-04-01T00:00:00Z",
                                                 .from_run   = "reference",
                                                 .commit     = "fedcba987654"}}},
                                .comparison = *compare(earlier, fixture_run())};
  for (const ExperimentRecord& e : fixture_run().experiments)
    for (const PointRecord& point : e.points) {
      if (e.id != "ch07/transpose_cpu") continue;
      context.diagnoses[result_id(e.id, "naive", point.at)]   = "one line of 64 bytes a number (likely)";
      context.diagnoses[result_id(e.id, "blocked", point.at)] = "of neither";
    }
  return context;
}

Roofs fixture_roofs() {
  return {.memory   = {{"DRAM read, 2 threads", 1.9e10},
                       {"DRAM read, 1 thread", 1.2e10},
                       {"L3 read, 1 thread", 2.6e10},
                       {"L2 read, 1 thread", 7.1e10},
                       {"L1 read, 1 thread", 1.9e11}},
          .compute  = {{"fp32 FMA, AVX2, 2 threads", 2.2e11},
                       {"fp32 FMA, AVX2, 1 thread", 1.1e11},
                       {"fp32 FMA, scalar, 1 thread", 1.37e10}},
          .measured = "fixture-2c, 2026-05-01 09:30 UTC"};
}

}  // namespace fathom::report
