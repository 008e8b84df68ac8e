// Ranks that train on parts of a batch sum their gradients. A sum of one layer can begin while earlier layers
// are still being computed. Small sums are slow, and what is summed last is waited for.
#include "lab/experiment.h"

#include <array>

#include "cuda/device.h"
#include "gradients.h"

namespace fathom::lab::gradient_buckets_gpu {

// A byte of the nonce is a number, so that sums are exact.
void Gradients::put_nonce(Context& context) const {
  std::array<float, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<float>(context.rank->nonce() >> (8 * i) & 0xFF);
  context.rank->device()->to_device(nonce.data(), bytes.data(), nonce.bytes());
}

uint64_t Gradients::nonce_sum(Context& context) const {
  std::array<float, 8> sums{};
  context.rank->device()->to_host(sums.data(), nonces.data(), nonces.bytes());
  uint64_t sum = 0;
  for (size_t i = 0; i < sums.size(); ++i) sum += static_cast<uint64_t>(sums[i]) << (8 * i);
  return sum;
}

namespace {

std::function<Launch<Gradients>(const Gradients&, Context&)> prepared(Call (*prepare)(const Gradients&,
                                                                                      Context&)) {
  if (!prepare) return nullptr;
  return [prepare](const Gradients& p, Context& context) -> Launch<Gradients> { return prepare(p, context); };
}

const Experiment<Gradients> gradient_buckets_gpu{
    .question =
        "How much of the sum of gradients over two GPUs hides behind the backward pass, and in pieces of "
        "what "
        "size?",
    .limit        = Limit::tensor_flops,
    .axes         = {{"width", {2048, 512}}, {"layers", {24}}, {"tokens", {4096}}},
    .check_at     = {{"width", {16, 48}}, {"layers", {0, 1, 5}}, {"tokens", {8, 1000}}},
    .variants     = {{.id         = "after_backward",
                      .techniques = {"collectives"},
                      .idea       = "all layers, then ncclAllReduce of each layer's gradient",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(after_backward)},
                     {.id         = "one_bucket",
                      .techniques = {"collectives", "gradient_bucketing"},
                      .idea       = "all layers, then one ncclAllReduce of all gradients",
                      .prediction = predict::ratio_at_least(1.0),
                      .prepare    = prepared(one_bucket)},
                     {.id         = "as_ready",
                      .techniques = {"collectives", "comm_compute_overlap", "streams"},
                      .idea       = "each layer's sum on a second stream, as soon as the layer is done",
                      .prediction = predict::ratio_at_least(1.2),
                      .prepare    = prepared(as_ready)},
                     {.id         = "buckets_4mib",
                      .techniques = {"collectives", "comm_compute_overlap", "gradient_bucketing", "streams"},
                      .idea       = "the same, in pieces of at least 4 MiB",
                      .prediction = predict::ratio_at_least(1.5),
                      .prepare    = prepared(buckets_4mib)},
                     {.id         = "buckets_25mib",
                      .techniques = {"collectives", "comm_compute_overlap", "gradient_bucketing", "streams"},
                      .idea       = "the same, in pieces of at least 25 MiB, PyTorch's default",
                      .prediction = predict::ratio_at_least(1.4),
                      .prepare    = prepared(buckets_25mib)}},
    .backend      = Backend::cuda,
    .catalog      = {"distributed-004", "distributed-005", "distributed-006"},
    .ranks        = 2,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(gradient_buckets_gpu);

}  // namespace
}  // namespace fathom::lab::gradient_buckets_gpu
