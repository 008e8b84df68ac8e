// The inputs of a forward pass on the GPU, as arrays in one allocation, so that one copy brings them to the
// device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/view.h"
#include "engine/scheduler.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/sampling/sample.h"
#include "model/gpt_oss_gpu.h"

namespace fathom::engine {

struct GpuBatchOptions {
  int64_t max_decode_rows = 0;  // of is_decode()
  int64_t max_context     = 0;
  bool pad_rows           = true;  // pads the rows of batches without prefill to a bucket size
  // Decode rows are prefill tiles of one row, so that all rows use the same kernel (batch invariance).
  bool decode_as_prefill = false;
};

// Extents of a batch, padding included. For a padded batch without prefill all extents follow from rows and
// pages_per_sequence, so one CUDA graph serves each such pair.
struct GpuBatchShape {
  int64_t rows = 0, decode_rows = 0, tiles = 0;
  bool decode_as_prefill = false;                 // decode rows have tiles too, the first ones
  int64_t sequences = 0, pages_per_sequence = 0;  // of the block tables
  int64_t sampled_rows = 0;

  bool has_prefill() const { return rows > decode_rows; }
  int64_t max_seq_len() const;  // positions that the block tables hold
};

// The arrays, in memory that begins at `base`, on the host or on the device. Padding rows have position and
// slot -1.
struct GpuInputBatch {
  GpuInputBatch(const GpuBatchShape& shape, std::byte* base);

  // [rows]. prev_sampled_index >= 0: the row's token is that element of the tokens sampled by earlier steps,
  // which the host may not know yet.
  View<int32_t, 1> tokens, prev_sampled_index, positions, sequence;
  std::array<View<int32_t, 1>, kKvKinds> slot_mapping;  // [rows]: where the row's key and value go
  std::array<View<int32_t, 2>, kKvKinds> block_table;   // [sequences, pages_per_sequence]
  View<kernels::PrefillTile, 1> tiles;
  View<int32_t, 1> logits_rows;            // [sampled_rows]: rows whose logits are needed; -1: padding
  View<kernels::SamplingRow, 1> sampling;  // [sampled_rows]
  View<int32_t, 1> pass;                   // [1], see model::GpuBatch
  int64_t bytes = 0;

  model::GpuBatch batch(const GpuBatchShape& shape, View<const int32_t, 1> sampled) const;
};

// Rows first .. first + rows of a scheduled sequence, in one batch.
struct ScheduledChunk {
  size_t index  = 0;  // in SchedulerOutput::sequences
  int64_t first = 0, rows = 0;
  int64_t sampled_rows = 0;  // the last of them
};

// Whether the decode attention kernel computes its rows. That kernel fetches pages while the one that writes
// this step's keys and values may still run (decode_attention.h); the prefill kernel waits for it.
inline bool is_decode(const ScheduledSequence& scheduled, int64_t max_decode_rows) {
  return scheduled.rows <= max_decode_rows && !scheduled.reads_rows_of_step;
}

// Splits a step into batches of at most `max_rows` rows, one forward pass each. Batches follow the order of
// the step, because a sequence may read pages that one before it writes. In a batch, decodes come
// first; they are not split. Prefills may be.
std::vector<std::vector<ScheduledChunk>> split_into_batches(const SchedulerOutput& step,
                                                            int64_t max_decode_rows, int64_t max_rows);

// A batch without prefill is padded to a bucket in which every row is sampled, if the logits of so many rows
// fit in `logit_room`.
GpuBatchShape batch_shape(const SchedulerOutput& step, std::span<const ScheduledChunk> batch,
                          const GpuBatchOptions& options, int64_t logit_room);

// Fills all arrays that the host knows: all but prev_sampled_index (set to -1) `sampling` and `pass`.
void fill_input_batch(const SchedulerOutput& step, std::span<const ScheduledChunk> batch,
                      const GpuBatchShape& shape, const GpuInputBatch& input);

// The bucket size for a number of rows: 1, 2, 4, 8, then steps that waste at most a quarter.
int64_t padded_rows(int64_t rows);

}  // namespace fathom::engine
