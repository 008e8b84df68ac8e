// A decode step on several GPUs sums over the ranks twice a layer. NCCL is made for large messages. What does
// a sum of few rows cost by it, and by a kernel that writes into the other GPU's memory and adds?
#include "lab/experiment.h"

#include <array>

#include "all_reduce.h"
#include "cuda/device.h"

namespace fathom::lab::all_reduce_gpu {

// A byte of the nonce is a number of the row, so that sums of them are exact.
void Sums::put_nonce(Context& context) const {
  std::array<float, kWidth> row{};
  for (size_t i = 0; i < 8; ++i) row[i] = static_cast<float>(context.rank->nonce() >> (8 * i) & 0xFF);
  context.rank->device()->to_device(nonce.data(), row.data(), nonce.bytes());
}

uint64_t Sums::nonce_sum(Context& context) const {
  std::array<float, 8> sums{};
  context.rank->device()->to_host(sums.data(), nonces.data(), sizeof sums);
  uint64_t sum = 0;
  for (size_t i = 0; i < 8; ++i) sum += static_cast<uint64_t>(sums[i] / 2) << (8 * i);
  return sum;
}

namespace {

std::function<Launch<Sums>(const Sums&, Context&)> prepared(Call (*prepare)(const Sums&, Context&)) {
  if (!prepare) return nullptr;
  return [prepare](const Sums& p, Context& context) -> Launch<Sums> { return prepare(p, context); };
}

const Experiment<Sums> all_reduce_gpu{
    .question =
        "What does the sum over two GPUs of a decode step's rows cost, added to the residual stream and in a "
        "CUDA graph, by NCCL and by kernels that write into each other's memory?",
    .axes         = {{"rows", {1, 8, 32, 64, 128, 256, 1024, 8192}}},
    .check_at     = {{"rows", {0, 1, 2, 127, 257}}},
    .variants     = {{.id         = "nccl_then_add",
                      .techniques = {"collectives"},
                      .idea       = "ncclAllReduce, then a kernel that adds",
                      .prediction = predict::nothing(),
                      .prepare    = prepared(nccl_then_add)},
                     {.id         = "row_flags",
                      .techniques = {"collectives"},
                      .idea       = "one kernel writes into the other GPU's memory: a flag a row, behind a fence",
                      .prediction = predict::ratio_at_least(1.2),
                      .prepare    = prepared(row_flags)},
                     {.id         = "low_latency",
                      .techniques = {},
                      .idea       = "a number that is not zero has arrived: one trip over the link, no fence",
                      .prediction = predict::ratio_at_least(1.35),
                      .kind       = Kind::engine,
                      .op         = "kernels/collectives/all_reduce_add.cu",
                      .prepare    = prepared(low_latency)}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // a graph holds the addresses it was captured with
    .catalog      = {"distributed-001"},
    .ranks        = 2,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(all_reduce_gpu);

}  // namespace

}  // namespace fathom::lab::all_reduce_gpu
