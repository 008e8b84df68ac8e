// The two exchanges of sharded training, for each format in which numbers may travel.
//
// fp8: weights in E4M3, gradients in E5M2, which has the wider range. Each message has a scale of its own,
// from the largest magnitude in it, which travels before the codes: nobody waits to agree on one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"

namespace fathom::lab::distributed_training {

enum class Wire { fp32, fp8 };

// Memory for codes, between calls. All calls with it are made by one thread.
struct Codes {
  std::vector<uint8_t> out, in;
  int64_t bytes() const { return static_cast<int64_t>(out.size() + in.size()); }
};

// whole: the shards of all ranks, in their order, as long as each other. With fp8 all ranks get the rounded
// numbers, of their own shard too, so that all have the same.
void all_gather(comm::Group& group, Wire wire, std::span<const float> shard, std::span<float> whole,
                Codes& codes);

// whole: a shard for each rank. sums: of all ranks' shard of this rank, added in fp32 in the order of ranks.
// With fp8 what other ranks send is rounded; what this one adds itself is not.
void reduce_scatter(comm::Group& group, Wire wire, std::span<const float> whole, std::span<float> sums,
                    Codes& codes);

}  // namespace fathom::lab::distributed_training
