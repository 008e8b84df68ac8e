#include "engine/gpu_input_batch.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::engine {
namespace {

constexpr int64_t kPage         = kernels::kTile;
constexpr int64_t kMinBucketLen = 1024;  // positions of the smallest bucket of sequence lengths
constexpr int64_t kAlignment    = 16;

int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

}  // namespace

int64_t GpuBatchShape::max_seq_len() const { return pages_per_sequence * kPage; }

GpuInputBatch::GpuInputBatch(const GpuBatchShape& s, std::byte* base) {
  const auto take = [&]<class T, int Rank>(View<T, Rank>& view, const int64_t(&extents)[Rank]) {
    view = View<T, Rank>(reinterpret_cast<T*>(base + bytes), extents);
    bytes += (view.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (auto* view :
       {&tokens, &prev_sampled_index, &positions, &sequence, &slot_mapping[kFull], &slot_mapping[kWindow]})
    take(*view, {s.rows});
  for (auto& view : block_table) take(view, {s.sequences, s.pages_per_sequence});
  take(tiles, {s.tiles});
  take(logits_rows, {s.sampled_rows});
  take(sampling, {s.sampled_rows});
  take(pass, {1});
}

model::GpuBatch GpuInputBatch::batch(const GpuBatchShape& shape, View<const int32_t, 1> sampled) const {
  return {.tokens             = tokens,
          .prev_sampled_index = prev_sampled_index,
          .prev_sampled       = sampled,
          .positions          = positions,
          .sequence           = sequence,
          .decode_rows        = shape.decode_as_prefill ? 0 : shape.decode_rows,
          .tiles              = tiles,
          .max_seq_len        = shape.max_seq_len(),
          .pass               = pass,
          .full               = {.slot_mapping = slot_mapping[kFull], .block_table = block_table[kFull]},
          .window             = {.slot_mapping = slot_mapping[kWindow], .block_table = block_table[kWindow]}};
}

int64_t padded_rows(int64_t rows) {
  int64_t step = 1;
  while (step * 8 < rows) step *= 2;
  if (rows <= 8) {
    int64_t power = 1;
    while (power < rows) power *= 2;
    return power;
  }
  return (rows + step - 1) / step * step;
}

std::vector<std::vector<ScheduledChunk>> split_into_batches(const SchedulerOutput& step,
                                                            int64_t max_decode_rows, int64_t max_rows) {
  std::vector<std::vector<ScheduledChunk>> batches;
  int64_t room   = 0;
  const auto add = [&](size_t e, bool may_split) {
    const ScheduledSequence& scheduled = step.sequences[e];
    const int64_t sampled_rows = scheduled.samples ? 1 + static_cast<int64_t>(scheduled.drafts.size()) : 0;
    for (int64_t row = 0; row < scheduled.rows;) {
      if (room == 0 || (!may_split && room < scheduled.rows)) batches.emplace_back(), room = max_rows;
      const int64_t rows = std::min(room, scheduled.rows - row);
      const bool last    = row + rows == scheduled.rows;
      batches.back().push_back(
          {.index = e, .first = row, .rows = rows, .sampled_rows = last ? sampled_rows : 0});
      row += rows;
      room -= rows;
    }
  };
  const auto decodes = [&](size_t e) { return is_decode(step.sequences[e], max_decode_rows); };
  for (size_t e = 0; e < step.sequences.size(); ++e) add(e, !decodes(e));
  for (auto& batch : batches)
    std::stable_partition(batch.begin(), batch.end(),
                          [&](const ScheduledChunk& chunk) { return decodes(chunk.index); });
  return batches;
}

GpuBatchShape batch_shape(const SchedulerOutput& step, std::span<const ScheduledChunk> batch,
                          const GpuBatchOptions& options, int64_t logit_room) {
  GpuBatchShape shape{.decode_as_prefill = options.decode_as_prefill};
  int64_t max_seq_len = 0;
  for (const ScheduledChunk& chunk : batch) {
    const ScheduledSequence& scheduled = step.sequences[chunk.index];
    const int64_t first                = scheduled.first + chunk.first;
    max_seq_len                        = std::max(max_seq_len, first + chunk.rows);
    shape.rows += chunk.rows;
    shape.sampled_rows += chunk.sampled_rows;
    if (is_decode(scheduled, options.max_decode_rows))
      shape.decode_rows += chunk.rows;
    else
      shape.tiles += pages_for(first % kPage + chunk.rows);
  }
  shape.sequences          = static_cast<int64_t>(batch.size());
  shape.pages_per_sequence = pages_for(max_seq_len);
  const int64_t rounded    = options.pad_rows ? padded_rows(shape.rows) : shape.rows;
  if (!shape.has_prefill() && rounded <= logit_room) {
    int64_t bucket = kMinBucketLen;
    while (bucket < max_seq_len) bucket *= 2;
    shape.pages_per_sequence = pages_for(std::min(bucket, std::max(max_seq_len, options.max_context)));
    shape.rows = shape.decode_rows = shape.sequences = shape.sampled_rows = rounded;
  }
  if (options.decode_as_prefill) shape.tiles += shape.decode_rows;
  return shape;
}

void fill_input_batch(const SchedulerOutput& step, std::span<const ScheduledChunk> batch,
                      const GpuBatchShape& shape, const GpuInputBatch& input) {
  int32_t row = 0, sequence = 0;
  int64_t tile = 0, sampled = 0;
  for (const ScheduledChunk& chunk : batch) {
    const ScheduledSequence& scheduled = step.sequences[chunk.index];
    const auto& tokens                 = scheduled.sequence->tokens;
    const auto& tables                 = scheduled.sequence->pages.block_tables;
    const int64_t own                  = scheduled.rows - static_cast<int64_t>(scheduled.drafts.size());
    const int64_t begin = scheduled.first + chunk.first, end = begin + chunk.rows;
    for (int kind = 0; kind < kKvKinds; ++kind) {
      const auto& pages   = tables[static_cast<size_t>(kind)].pages;
      const int64_t count = std::min(static_cast<int64_t>(pages.size()), shape.pages_per_sequence);
      int32_t* to         = &input.block_table[static_cast<size_t>(kind)](sequence, 0);
      std::copy_n(pages.begin(), count, to);
      std::fill(to + count, to + shape.pages_per_sequence, -1);
    }
    const bool prefill = row >= shape.decode_rows;
    for (int64_t position = begin; position < end; ++position, ++row) {
      if (prefill && (position == begin || position % kPage == 0))
        input.tiles(tile++) = {
            .row      = row,
            .rows     = static_cast<int32_t>(std::min(end, (position / kPage + 1) * kPage) - position),
            .sequence = sequence};
      if (!prefill && shape.decode_as_prefill)
        input.tiles(tile++) = {.row = row, .rows = 1, .sequence = sequence};
      const int64_t r               = position - scheduled.first;
      input.tokens(row)             = r >= own ? scheduled.drafts[static_cast<size_t>(r - own)]
                                      : position < static_cast<int64_t>(tokens.size())
                                          ? tokens[static_cast<size_t>(position)]
                                          : 0;
      input.prev_sampled_index(row) = -1;
      input.positions(row)          = static_cast<int32_t>(position);
      input.sequence(row)           = sequence;
      for (size_t kind = 0; kind < kKvKinds; ++kind) {
        const auto& pages             = tables[kind].pages;
        const auto block              = static_cast<size_t>(position / kPage);
        input.slot_mapping[kind](row) = block < pages.size() && pages[block] >= 0
                                            ? static_cast<int32_t>(pages[block] * kPage + position % kPage)
                                            : -1;
      }
    }
    for (int64_t c = 0; c < chunk.sampled_rows; ++c)
      input.logits_rows(sampled++) = row - static_cast<int32_t>(chunk.sampled_rows - c);
    ++sequence;
  }
  for (; row < shape.rows; ++row) {
    if (shape.decode_as_prefill) input.tiles(tile++) = {.row = 0, .rows = 0, .sequence = 0};
    input.tokens(row) = input.sequence(row) = 0;
    input.prev_sampled_index(row) = input.positions(row) = -1;
    for (auto& slots : input.slot_mapping) slots(row) = -1;
  }
  for (; sequence < shape.sequences; ++sequence)
    for (auto& pages : input.block_table) std::fill_n(&pages(sequence, 0), shape.pages_per_sequence, -1);
  for (; sampled < shape.sampled_rows; ++sampled) input.logits_rows(sampled) = -1;
  FATHOM_EXPECT(tile == shape.tiles, "a pass's tiles were counted wrong");
}

}  // namespace fathom::engine
