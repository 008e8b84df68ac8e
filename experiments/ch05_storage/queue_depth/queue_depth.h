// The problem: for each record of a file the sum of its 32-bit words. Records have `record` bytes and are
// read in the order of `order`, with O_DIRECT, with `depth` of them in flight.
#pragma once

#include <memory>

#include "core/rng.h"
#include "experiments/ch05_storage/scratch_file.h"
#include "experiments/ch05_storage/sum_of_words.h"
#include "lab/problem.h"

namespace fathom::lab::queue_depth {

struct Records {
  int64_t bytes;  // of a record
  int64_t depth;  // reads in flight
  std::shared_ptr<const ScratchFile> file = std::make_shared<ScratchFile>();
  View<const int32_t, 2> contents;  // record, word: of the file, for the reference only
  View<const int32_t, 1> order;     // names every record once
  View<int64_t, 1> out;
  View<uint8_t, 1> buffer;  // use aligned(buffer): a record for each read in flight

  Records(const Point& at, Arena& arena)
      : bytes(at["record"]),
        depth(at["depth"]),
        contents(
            arena.input<int32_t>({at["records"], bytes / 4},
                                 generate<int32_t>([file = file](int32_t* data, int64_t n, uint64_t seed) {
                                   fill_integers(data, n, seed, INT32_MIN, int64_t{INT32_MAX} + 1);
                                   file->rewrite(data, n * 4);
                                 }))),
        order(arena.input<int32_t>({at["records"]}, Permutation{})),
        out(arena.output<int64_t>({at["records"]})),
        buffer(arena.workspace<uint8_t>({depth * bytes + ScratchFile::kAlignment})) {}

  Cost cost() const { return {.disk_read = contents.bytes()}; }
  // The records that a call reads: the harness makes reads a second of them.
  void metrics(CallMetrics& metrics) const {
    metrics["requests"] = {static_cast<double>(order.extent(0)), "higher"};
  }
  int64_t expected(int64_t record) const {
    int64_t sum = 0;
    for (int64_t w = 0; w < contents.extent(1); ++w) sum += contents(record, w);
    return sum;
  }
};

void one_at_a_time(const Records& p, Context& context);
Launch<Records> prepare_queue(const Records& p, Context& context);

}  // namespace fathom::lab::queue_depth
