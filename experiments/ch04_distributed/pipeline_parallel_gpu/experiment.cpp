// A model too large for one GPU lies in stages on several, and a batch goes through them one after another.
// How much of the time in which a stage waits do micro-batches fill, and what do they cost?
#include "lab/experiment.h"

#include <array>

#include "cuda/device.h"
#include "stages.h"

namespace fathom::lab::pipeline_parallel_gpu {

// Every product is compared with that of its factors as they are: what has arrived, and is checked itself, is
// the factor of others. So no error is carried through two layers.
void Stages::check(Checker& checker, const AllRanks<Stages>& ranks) const {
  const auto product = [](int64_t length, auto&& a, auto&& b) {
    Sum sum{.length = length};
    for (int64_t i = 0; i < length; ++i) {
      const double term =
          static_cast<double>(static_cast<float>(a(i))) * static_cast<double>(static_cast<float>(b(i)));
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  };
  const Matrix x = this->x(), dy = this->dy();
  const auto forward = [&](Matrix rows, Matrix w, int64_t t, int64_t o) {
    return product(
        w.extent(1), [&](int64_t i) { return rows(t, i); }, [&](int64_t i) { return w(o, i); });
  };
  const auto backward = [&](Matrix gradient, Matrix w, int64_t t, int64_t i) {
    return product(
        w.extent(0), [&](int64_t o) { return gradient(t, o); }, [&](int64_t o) { return w(o, i); });
  };
  checker.values("arrived", arrived, [&](int64_t t, int64_t c) {
    const Stages& other = ranks[1 - stage];
    return stage == 0 ? backward(other.inputs, other.weight, t, c)
                      : forward(other.inputs, other.weight, t, c);
  });
  checker.values("y", y, [&](int64_t t, int64_t o) { return forward(x, weight, t, o); });
  checker.values("dx", dx, [&](int64_t t, int64_t i) { return backward(dy, weight, t, i); });
  checker.values("dw", dw, [&](int64_t o, int64_t i) {
    return product(
        rows(), [&](int64_t t) { return dy(t, o); }, [&](int64_t t) { return x(t, i); });
  });
}

void Stages::put_nonce(Context& context) const {
  const std::array<uint64_t, 2> mine = {context.rank->nonce(), 0};
  context.rank->device()->to_device(&nonces(context.rank->rank(), 0), mine.data(), sizeof mine);
}

uint64_t Stages::nonce_sum(Context& context) const {
  std::array<uint64_t, 2 * kStages> all{};
  context.rank->device()->to_host(all.data(), nonces.data(), sizeof all);
  uint64_t sum = 0;
  for (size_t r = 0; r < kStages; ++r) sum += all[2 * r];
  return sum;
}

namespace {

using MakeSchedule = pipeline_parallel::Schedule (*)(int stages, int micro_batches);

std::function<Launch<Stages>(const Stages&, Context&)> by(MakeSchedule schedule, bool whole_batch = false) {
  if (!step_by) return nullptr;
  return [=](const Stages& p, Context& context) -> Launch<Stages> {
    const int micro_batches = whole_batch ? 1 : p.micro_batches;
    return step_by(p, context, schedule(kStages, micro_batches), micro_batches);
  };
}

const Experiment<Stages> pipeline_parallel_gpu{
    .question =
        "How much of a pipeline's bubble do micro-batches fill on two GPUs, how much the order of passes, "
        "and "
        "what do small micro-batches cost?",
    .limit        = Limit::tensor_flops,
    .axes         = {{"micro_batches", {8, 4, 32}}, {"rows", {16384}}, {"width", {4096}}},
    .check_at     = {{"micro_batches", {1, 4, 32}}, {"rows", {96}}, {"width", {16, 48}}},
    .variants     = {{.id         = "whole_batch",
                      .techniques = {"pipeline_parallel"},
                      .idea       = "no micro-batches: one GPU works at a time",
                      .prediction = predict::nothing(),
                      .prepare    = by(pipeline_parallel::gpipe, true)},
                     {.id         = "gpipe",
                      .techniques = {"pipeline_parallel", "comm_compute_overlap", "streams"},
                      .idea       = "all forward passes, then all backward passes; modelled 1.43, 1.54, 1.63",
                      .prediction = predict::ratio_at_least(1.3),
                      .prepare    = by(pipeline_parallel::gpipe)},
                     {.id         = "one_f_one_b",
                      .techniques = {"pipeline_parallel", "comm_compute_overlap", "streams"},
                      .idea       = "a backward pass as soon as there is one: two micro-batches need be kept",
                      .prediction = predict::ratio_at_least(1.3),
                      .prepare    = by(pipeline_parallel::one_f_one_b)},
                     {.id         = "zero_bubble_h1",
                      .techniques = {"pipeline_parallel", "comm_compute_overlap", "streams"},
                      .idea       = "weights' gradients fill the bubble; modelled 1.54, 1.60, 1.65",
                      .prediction = predict::ratio_at_least(1.35),
                      .prepare    = by(pipeline_parallel::zero_bubble_h1)}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // stages send into memory whose addresses they were told
    .catalog      = {"distributed-010", "distributed-012"},
    .ranks        = kStages,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(pipeline_parallel_gpu);

}  // namespace
}  // namespace fathom::lab::pipeline_parallel_gpu
