// NCCL chooses algorithm, protocol and the number of thread blocks for each message, by a model of the
// machine. Where is that choice not the best of those it has?
#include "lab/experiment.h"

#include <array>

#include "all_reduces.h"
#include "cuda/device.h"

namespace fathom::lab::nccl_tuning_gpu {

void AllReduces::put_nonce(Context& context) const {
  std::array<float, kNonce> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<float>(context.rank->nonce() >> (8 * i) & 0xFF);
  context.rank->device()->to_device(message.data(), bytes.data(), sizeof bytes);
  copy_behind_nonce(*this, context.stream);
}

uint64_t AllReduces::nonce_sum(Context& context) const {
  std::array<float, kNonce> bytes{};
  context.rank->device()->to_host(bytes.data(), sums.data(), sizeof bytes);
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += static_cast<uint64_t>(bytes[i]) << (8 * i);
  return sum;
}

namespace {

std::function<Launch<AllReduces>(const AllReduces&, Context&)> by(const Tuning& tuning) {
  if (!tuned) return nullptr;
  return [tuning](const AllReduces& p, Context& context) -> Launch<AllReduces> {
    return tuned(p, context, tuning);
  };
}

const Experiment<AllReduces> nccl_tuning_gpu{
    .question =
        "What does NCCL's all-reduce over two GPUs gain by algorithm, protocol, thread blocks and clusters "
        "other than its own choice, by size of the message?",
    .axes         = {{"floats", {4096, 65536, 1 << 20, 16 << 20, 64 << 20}}},
    .check_at     = {{"floats", {0, 1, 13, 1009, 4097}}},
    .variants     = {{.id         = "defaults",
                      .techniques = {"collectives"},
                      .idea       = "NCCL's own choice for each message",
                      .prediction = predict::nothing(),
                      .prepare    = by({})},
                     {.id         = "ring_ll",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "a flag beside every 4 bytes: no fence, half the bytes of the link",
                      .prediction = predict::ratio_at_least(0.25),
                      .prepare    = by({.algorithm = "Ring", .protocol = "LL"})},
                     {.id         = "ring_ll128",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "a flag of 8 bytes in a line of 128: 15/16 of the link",
                      .prediction = predict::ratio_at_least(0.7),
                      .prepare    = by({.algorithm = "Ring", .protocol = "LL128"})},
                     {.id         = "ring_simple",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "whole chunks behind a fence: all of the link, and its latency",
                      .prediction = predict::ratio_at_least(0.4),
                      .prepare    = by({.algorithm = "Ring", .protocol = "Simple"})},
                     {.id         = "tree",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "up to a root and down again; NCCL chooses the protocol",
                      .prediction = predict::ratio_at_least(0.45),
                      .prepare    = by({.algorithm = "Tree"})},
                     {.id         = "ctas_at_most_4",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "maxCTAs = 4: what four multiprocessors can move",
                      .prediction = predict::ratio_at_least(0.2),
                      .prepare    = by({.max_ctas = 4})},
                     {.id         = "no_clusters",
                      .techniques = {"collectives", "collective_tuning"},
                      .idea       = "cgaClusterSize = 0: thread blocks are placed one by one",
                      .prediction = predict::ratio_at_least(0.95),
                      .prepare    = by({.cga_cluster = 0})}},
    .backend      = Backend::cuda,
    .cache        = Cache::hot,
    .sets         = 1,  // a graph holds the addresses it was captured with
    .catalog      = {"distributed-002"},
    .ranks        = 2,
    .ranks_as     = RanksAs::devices,
    .shared_bytes = 4096,
};
FATHOM_REGISTER(nccl_tuning_gpu);

}  // namespace
}  // namespace fathom::lab::nccl_tuning_gpu
