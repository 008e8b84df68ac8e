#include "engine/gpu_input_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fathom::engine {
namespace {

constexpr int64_t kMaxDecodeRows = 4, kLogitRoom = 512;

// Sequences with a page for each block of both kinds: from 100 s on and from 1000 + 100 s on for sequence s.
class GpuInputBatches : public testing::Test {
 protected:
  Sequence& sequence(int64_t known) {
    Request request;
    for (int64_t t = 0; t < known; ++t) request.prompt.push_back(static_cast<model::TokenId>(7 * t % 1000));
    const auto id = static_cast<RequestId>(sequences_.size());
    auto& made =
        *sequences_.emplace_back(std::make_unique<Sequence>(id, std::move(request), Listener(), TimePoint()));
    for (int kind = 0; kind < kKvKinds; ++kind)
      for (int64_t block = 0; block * 64 < known + 64; ++block)
        made.pages.block_tables[static_cast<size_t>(kind)].pages.push_back(
            static_cast<Page>(1000 * kind + 100 * static_cast<int64_t>(id) + block));
    return made;
  }

  struct Filled {
    GpuBatchShape shape;
    std::vector<std::byte> memory;
    std::unique_ptr<GpuInputBatch> input;
  };
  static Filled filled(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                       int64_t context) {
    return filled(step, batch, {.max_decode_rows = kMaxDecodeRows, .max_context = context});
  }
  static Filled filled(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                       const GpuBatchOptions& options) {
    Filled d{.shape = batch_shape(step, batch, options, kLogitRoom)};
    const int64_t bytes = GpuInputBatch(d.shape, nullptr).bytes;
    d.memory.resize(static_cast<size_t>(bytes), std::byte{0x5A});
    d.input = std::make_unique<GpuInputBatch>(d.shape, d.memory.data());
    fill_input_batch(step, batch, d.shape, *d.input);
    return d;
  }

  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(PaddedRows, HaveFewBucketsWithLittleWaste) {
  EXPECT_EQ(padded_rows(1), 1);
  EXPECT_EQ(padded_rows(3), 4);
  EXPECT_EQ(padded_rows(8), 8);
  std::set<int64_t> numbers;
  for (int64_t rows = 1; rows <= 512; ++rows) {
    const int64_t padded = padded_rows(rows);
    numbers.insert(padded);
    ASSERT_GE(padded, rows);
    ASSERT_EQ(padded_rows(padded), padded);
    if (rows > 8) {
      ASSERT_LE(padded * 4, rows * 5) << rows;
    }
  }
  EXPECT_LT(numbers.size(), 32u);
}

TEST_F(GpuInputBatches, DecodeRowsAreFollowedByPadding) {
  SchedulerOutput step;
  for (const int64_t known : {1, 64, 65, 700, 130}) {
    Sequence& one = sequence(known);
    step.sequences.push_back({.sequence = &one, .first = known - 1, .rows = 1, .samples = true});
  }
  const auto batches = split_into_batches(step, kMaxDecodeRows, 512);
  ASSERT_EQ(batches.size(), 1u);
  const auto d            = filled(step, batches[0], 4096);
  const GpuInputBatch& in = *d.input;
  ASSERT_EQ(d.shape.rows, 8);
  EXPECT_EQ(d.shape.decode_rows, 8);
  EXPECT_EQ(d.shape.tiles, 0);
  EXPECT_EQ(d.shape.sampled_rows, 8);
  EXPECT_EQ(d.shape.max_seq_len(), 1024);
  for (int32_t r = 0; r < 8; ++r) {
    const bool there = r < 5;
    EXPECT_EQ(in.prev_sampled_index(r), -1);
    EXPECT_EQ(in.logits_rows(r), there ? r : -1);
    EXPECT_EQ(in.positions(r), there ? step.sequences[static_cast<size_t>(r)].first : -1);
    if (!there) {
      EXPECT_EQ(in.slot_mapping[kFull](r), -1);
      EXPECT_EQ(in.slot_mapping[kWindow](r), -1);
      continue;
    }
    const int64_t position = in.positions(r);
    EXPECT_EQ(in.tokens(r), 7 * position % 1000);
    EXPECT_EQ(in.sequence(r), r);
    EXPECT_EQ(in.slot_mapping[kFull](r), (100 * r + position / 64) * 64 + position % 64);
    EXPECT_EQ(in.slot_mapping[kWindow](r), (1000 + 100 * r + position / 64) * 64 + position % 64);
    EXPECT_EQ(in.block_table[kFull](r, position / 64), 100 * r + position / 64);
    EXPECT_EQ(in.block_table[kFull](r, d.shape.pages_per_sequence - 1), -1) << "a page that it does not have";
  }
}

TEST_F(GpuInputBatches, DecodeAsPrefillHasTilesOfOneRow) {
  SchedulerOutput step;
  for (int s = 0; s < 5; ++s)
    step.sequences.push_back({.sequence = &sequence(70), .first = 69, .rows = 1, .samples = true});
  const auto d = filled(step, split_into_batches(step, kMaxDecodeRows, 512)[0],
                        {.max_decode_rows = kMaxDecodeRows, .max_context = 4096, .decode_as_prefill = true});
  ASSERT_EQ(d.shape.rows, 8);
  ASSERT_EQ(d.shape.tiles, 8);
  EXPECT_FALSE(d.shape.has_prefill());
  for (int32_t t = 0; t < 8; ++t) {
    const kernels::PrefillTile& tile = d.input->tiles(t);
    EXPECT_EQ(tile.rows, t < 5 ? 1 : 0);
    if (t < 5) {
      EXPECT_EQ(tile.row, t);
      EXPECT_EQ(tile.sequence, t);
    }
  }
  const auto batch = d.input->batch(d.shape, {});
  EXPECT_EQ(batch.decode_rows, 0) << "no row is attended to twice";
  EXPECT_EQ(batch.tiles.extent(0), 8);
}

TEST_F(GpuInputBatches, DecodeShapesDependOnRowsAndLengthOnly) {
  SchedulerOutput step;
  for (int s = 0; s < 3; ++s)
    step.sequences.push_back(
        {.sequence = &sequence(1000 + s), .first = 999 + s, .rows = 1, .samples = s != 1});
  const auto shape = [&](int64_t first) {
    step.sequences[2].first = first;
    return batch_shape(step, split_into_batches(step, kMaxDecodeRows, 64)[0],
                       {.max_decode_rows = kMaxDecodeRows, .max_context = 3000}, kLogitRoom);
  };
  EXPECT_EQ(shape(1023).max_seq_len(), 1024);
  EXPECT_EQ(shape(1024).max_seq_len(), 2048);
  EXPECT_EQ(shape(2048).max_seq_len(), 3008) << "no further than a context, in whole pages";
  EXPECT_EQ(shape(5).sampled_rows, 4) << "as many as there are rows, whoever samples";
}

TEST_F(GpuInputBatches, WithoutPaddingShapesHaveTheExactRows) {
  SchedulerOutput step;
  for (int s = 0; s < 11; ++s)
    step.sequences.push_back({.sequence = &sequence(70), .first = 69, .rows = 1, .samples = true});
  const auto batch = split_into_batches(step, kMaxDecodeRows, 64)[0];
  const auto d =
      filled(step, batch, {.max_decode_rows = kMaxDecodeRows, .max_context = 4096, .pad_rows = false});
  EXPECT_EQ(d.shape.rows, 11);
  EXPECT_EQ(d.shape.sampled_rows, 11);
  EXPECT_EQ(d.shape.max_seq_len(), 1024) << "how far they reach is rounded all the same";
  EXPECT_EQ(d.input->positions(10), 69);
}

// Many prompts of a few rows: more rows than logits fit.
TEST_F(GpuInputBatches, ShapesAreNotPaddedWhereLogitsDoNotFit) {
  SchedulerOutput step;
  for (int s = 0; s < 10; ++s)
    step.sequences.push_back({.sequence = &sequence(4), .first = 0, .rows = 4, .samples = true});
  const auto batch = split_into_batches(step, kMaxDecodeRows, 512);
  ASSERT_EQ(batch.size(), 1u);
  const GpuBatchOptions options{.max_decode_rows = kMaxDecodeRows, .max_context = 4096};
  const auto sampled = [&](int64_t room) { return batch_shape(step, batch[0], options, room).sampled_rows; };
  EXPECT_EQ(sampled(40), 40);
  EXPECT_EQ(sampled(39), 10);
  const GpuBatchShape shape = batch_shape(step, batch[0], options, 10);
  EXPECT_EQ(shape.rows, 40);
  EXPECT_EQ(shape.decode_rows, 40);
  EXPECT_EQ(shape.sequences, 10);
}

// A sequence may read pages that one before it in the step writes, so no batch has a later sequence first.
TEST_F(GpuInputBatches, BatchesFollowTheOrderOfTheStep) {
  SchedulerOutput step;
  for (const int64_t rows : {1, 200, 3, 300, 2})
    step.sequences.push_back({.sequence = &sequence(300), .first = 0, .rows = rows, .samples = true});
  for (const int64_t max_rows : {64, 203, 204, 205, 506, 512}) {
    size_t latest = 0;
    for (const auto& batch : split_into_batches(step, kMaxDecodeRows, max_rows)) {
      size_t last   = latest;
      bool prefills = false;
      for (const ScheduledChunk& chunk : batch) {
        EXPECT_GE(chunk.index, latest) << max_rows;
        last = std::max(last, chunk.index);
        EXPECT_FALSE(prefills && step.sequences[chunk.index].rows <= kMaxDecodeRows) << "after a prefill";
        prefills = step.sequences[chunk.index].rows > kMaxDecodeRows;
      }
      latest = last;
    }
    EXPECT_EQ(latest, 4u);
  }
}

// Decode attention fetches pages too early for a sequence that reads what others of the step write.
TEST_F(GpuInputBatches, WhoReadsRowsOfTheStepIsAPrefill) {
  for (const bool reads : {false, true}) {
    SchedulerOutput step;
    step.sequences.push_back({.sequence = &sequence(200), .first = 199, .rows = 1, .samples = true});
    step.sequences.push_back({.sequence = &sequence(130), .first = 0, .rows = 130, .samples = true});
    step.sequences.push_back(
        {.sequence = &sequence(130), .first = 128, .rows = 2, .samples = true, .reads_rows_of_step = reads});
    const auto batches = split_into_batches(step, kMaxDecodeRows, 512);
    ASSERT_EQ(batches.size(), 1u);
    const auto d = filled(step, batches[0], 4096);
    EXPECT_EQ(d.shape.decode_rows, reads ? 1 : 3);
    EXPECT_EQ(d.shape.tiles, reads ? 4 : 3);  // the prompt's three, and one of two rows
    if (reads) {
      EXPECT_EQ(d.input->tiles(3).rows, 2);
      EXPECT_EQ(d.input->positions(d.input->tiles(3).row), 128);
    }
  }
}

// Prefill rows, decode rows, drafts, and prompts split over several batches.
class GpuInputBatchTiles : public GpuInputBatches, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(TilesOnly, GpuInputBatchTiles, testing::Bool());

TEST_P(GpuInputBatchTiles, EveryRowIsInOneTileOrADecodeRow) {
  const bool decode_as_prefill = GetParam();
  SchedulerOutput step;
  step.sequences.push_back({.sequence = &sequence(300), .first = 37, .rows = 200});
  step.sequences.push_back(
      {.sequence = &sequence(80), .first = 79, .rows = 3, .drafts = {5, 6}, .samples = true});
  step.sequences.push_back({.sequence = &sequence(700), .first = 0, .rows = 700, .samples = true});
  step.sequences.push_back({.sequence = &sequence(10), .first = 9, .rows = 1, .samples = true});
  std::map<std::pair<size_t, int64_t>, int> seen;   // rows by sequence and position
  std::vector<std::pair<size_t, int64_t>> sampled;  // by sequence and position
  for (const auto& batch : split_into_batches(step, kMaxDecodeRows, 256)) {
    const auto d = filled(
        step, batch,
        {.max_decode_rows = kMaxDecodeRows, .max_context = 4096, .decode_as_prefill = decode_as_prefill});
    const GpuInputBatch& in = *d.input;
    ASSERT_LE(d.shape.rows, 256);
    std::set<int64_t> in_tiles;
    for (int64_t t = 0; t < d.shape.tiles; ++t) {
      const kernels::PrefillTile& tile = in.tiles(t);
      if (decode_as_prefill && tile.rows == 0) continue;  // padding
      ASSERT_GT(tile.rows, 0);
      ASSERT_LE(tile.rows, kernels::kPrefillTileRows);
      EXPECT_EQ(in.positions(tile.row) / 64, (in.positions(tile.row) + tile.rows - 1) / 64) << "two pages";
      for (int32_t r = tile.row; r < tile.row + tile.rows; ++r) {
        EXPECT_EQ(in.sequence(r), tile.sequence);
        EXPECT_EQ(in.positions(r), in.positions(tile.row) + r - tile.row);
        EXPECT_TRUE(in_tiles.insert(r).second) << "row " << r << " is in two tiles";
      }
    }
    for (int64_t r = 0; r < d.shape.rows; ++r) {
      EXPECT_EQ(in_tiles.contains(r), decode_as_prefill ? in.positions(r) >= 0 : r >= d.shape.decode_rows)
          << r;
      if (in.positions(r) < 0) continue;
      const size_t index = batch[static_cast<size_t>(in.sequence(r))].index;
      const auto place   = in.positions(r);
      ++seen[{index, place}];
      const auto& drafts = step.sequences[index].drafts;
      const int64_t own =
          step.sequences[index].first + step.sequences[index].rows - static_cast<int64_t>(drafts.size());
      EXPECT_EQ(in.tokens(r), place < own ? 7 * place % 1000 : drafts[static_cast<size_t>(place - own)]);
    }
    for (int64_t c = 0; c < d.shape.sampled_rows; ++c)
      if (in.logits_rows(c) >= 0)
        sampled.emplace_back(batch[static_cast<size_t>(in.sequence(in.logits_rows(c)))].index,
                             in.positions(in.logits_rows(c)));
  }
  size_t rows = 0;
  for (size_t e = 0; e < step.sequences.size(); ++e)
    for (int64_t r = 0; r < step.sequences[e].rows; ++r, ++rows) {
      const int times = seen[{e, step.sequences[e].first + r}];
      EXPECT_EQ(times, 1) << "entry " << e << " row " << r;
    }
  EXPECT_EQ(seen.size(), rows);
  EXPECT_EQ(sampled, (std::vector<std::pair<size_t, int64_t>>{{1, 79}, {1, 80}, {1, 81}, {3, 9}, {2, 699}}));
}

}  // namespace
}  // namespace fathom::engine
