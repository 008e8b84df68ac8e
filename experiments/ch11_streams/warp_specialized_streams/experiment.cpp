// A kernel can overlap its loads, its arithmetic and its stores by roles for its warps. Streams overlap whole
// kernels. Which of the two do small batches need?
#include "lab/experiment.h"

#include <cmath>
#include <vector>

#include "batches.h"

namespace fathom::lab::warp_specialized_streams {

Batches::Batches(const Point& at, Arena& arena)
    : in(arena.input<float>({at["batches"], at["rows"], at["width"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["batches"], at["rows"], at["width"]})) {
  FATHOM_EXPECT(at["width"] > 0 && at["width"] % 8 == 0 && at["width"] <= kMaxWidth,
                "half a row is a multiple of 16 bytes and fits a stage: widths up to 16384, multiples of 8");
  FATHOM_EXPECT(at["rows"] <= INT32_MAX / 2, "the kernels count rows in 32 bits");
}

Cost Batches::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 3.0 * static_cast<double>(in.size())};
}

void Batches::check(Checker& checker) const {
  std::vector<double> scales(static_cast<size_t>(batches() * rows()), -1);  // -1: not yet known
  checker.values("out", out, [&](int64_t b, int64_t r, int64_t i) {
    double& scale = scales[static_cast<size_t>(b * rows() + r)];
    if (scale < 0) {
      double squares = 0;
      for (int64_t k = 0; k < width(); ++k) squares += static_cast<double>(in(b, r, k)) * in(b, r, k);
      scale = 1 / std::sqrt(squares / static_cast<double>(width()) + double{kEpsilon});
    }
    const double y = in(b, r, i) * scale;
    // Running sums of a 64th of a row, a tree above them, the root and the product.
    return Sum{.value = y, .magnitude = std::abs(y), .length = width() / 64 + 16};
  });
}

namespace {

const Experiment<Batches> batches{
    .question =
        "Small batches each fill a quarter of the GPU: what do warp roles inside the kernel gain, and "
        "what do four streams?",
    .limit    = Limit::memory,
    .axes     = {{"batches", {16}}, {"rows", {128}}, {"width", {16384}}},
    .check_at = {{"batches", {1, 5}}, {"rows", {0, 1, 2, 3, 7, 8, 9, 21}}, {"width", {8, 72, 2056, 16384}}},
    .variants =
        {
            {.id         = "two_pipelines",
             .launch     = on_gpu(two_pipelines),
             .techniques = {"double_buffering", "tma_pipeline", "clusters", "dsmem"},
             .idea       = "two pipelines, all warps meet at each row; one stream",
             .prediction = predict::nothing(),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "warp_roles",
             .launch     = on_gpu(warp_roles),
             .techniques = {"double_buffering", "tma_pipeline", "clusters", "dsmem", "warp_specialization"},
             .idea       = "warps that load, compute, store; one stream",
             .prediction = predict::ratio_at_least(1.05),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "two_pipelines_streams",
             .techniques = {"double_buffering", "tma_pipeline", "clusters", "dsmem", "streams", "events",
                            "stream_priorities"},
             .idea       = "without roles; four streams of high priority",
             .prediction = predict::ratio_at_least(2.5),
             .prepare    = prepared_on_gpu(two_pipelines_streams),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
            {.id         = "warp_roles_streams",
             .techniques = {"double_buffering", "tma_pipeline", "clusters", "dsmem", "warp_specialization",
                            "streams", "events", "stream_priorities"},
             .idea       = "roles and four streams of high priority",
             .prediction = predict::ratio_at_least(2.7),
             .prepare    = prepared_on_gpu(warp_roles_streams),
             .needs      = {machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-008", "pipeline-019"},
};
FATHOM_REGISTER(batches);

}  // namespace
}  // namespace fathom::lab::warp_specialized_streams
