#include "engine/gpu_step.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fathom::engine {
namespace {

constexpr int64_t kSingle = 4, kLogitRoom = 512;

// Sequences with a page for each block in both groups, those of sequence s from 100 s and 1000 + 100 s on.
class GpuSteps : public testing::Test {
 protected:
  Sequence& sequence(int64_t known) {
    Request request;
    for (int64_t t = 0; t < known; ++t) request.prompt.push_back(static_cast<model::TokenId>(7 * t % 1000));
    const auto id = static_cast<RequestId>(sequences_.size());
    auto& made =
        *sequences_.emplace_back(std::make_unique<Sequence>(id, std::move(request), Listener(), TimePoint()));
    for (int group = 0; group < kGroups; ++group)
      for (int64_t block = 0; block * 64 < known + 64; ++block)
        made.pages.runs[static_cast<size_t>(group)].pages.push_back(
            static_cast<Page>(1000 * group + 100 * static_cast<int64_t>(id) + block));
    return made;
  }

  struct Described {
    GpuPassShape shape;
    std::vector<std::byte> memory;
    std::unique_ptr<GpuPassInput> input;
  };
  static Described described(const StepPlan& plan, const std::vector<GpuPiece>& pass, int64_t context) {
    return described(plan, pass, {.single_rows = kSingle, .max_context = context});
  }
  static Described described(const StepPlan& plan, const std::vector<GpuPiece>& pass,
                             const GpuPassRules& rules) {
    Described d{.shape = shape_of(plan, pass, rules, kLogitRoom)};
    const int64_t bytes = GpuPassInput(d.shape, nullptr).bytes;
    d.memory.resize(static_cast<size_t>(bytes), std::byte{0x5A});
    d.input = std::make_unique<GpuPassInput>(d.shape, d.memory.data());
    describe(plan, pass, d.shape, *d.input);
    return d;
  }

  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(PaddedRows, RoundUpToFewNumbersAndWasteLittle) {
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

TEST_F(GpuSteps, DecodingRowsAreThereOnceAndTheRestIsPadding) {
  StepPlan plan;
  for (const int64_t known : {1, 64, 65, 700, 130}) {
    Sequence& one = sequence(known);
    plan.entries.push_back({.sequence = &one, .first = known - 1, .rows = 1, .samples = true});
  }
  const auto passes = passes_of(plan, kSingle, 512);
  ASSERT_EQ(passes.size(), 1u);
  const auto d           = described(plan, passes[0], 4096);
  const GpuPassInput& in = *d.input;
  ASSERT_EQ(d.shape.rows, 8);
  EXPECT_EQ(d.shape.single_rows, 8);
  EXPECT_EQ(d.shape.tiles, 0);
  EXPECT_EQ(d.shape.chosen, 8);
  EXPECT_EQ(d.shape.longest(), 1024);
  for (int32_t r = 0; r < 8; ++r) {
    const bool there = r < 5;
    EXPECT_EQ(in.source(r), -1);
    EXPECT_EQ(in.chosen_rows(r), there ? r : -1);
    EXPECT_EQ(in.positions(r), there ? plan.entries[static_cast<size_t>(r)].first : -1);
    if (!there) {
      EXPECT_EQ(in.slots[kFull](r), -1);
      EXPECT_EQ(in.slots[kWindow](r), -1);
      continue;
    }
    const int64_t position = in.positions(r);
    EXPECT_EQ(in.tokens(r), 7 * position % 1000);
    EXPECT_EQ(in.sequence(r), r);
    EXPECT_EQ(in.slots[kFull](r), (100 * r + position / 64) * 64 + position % 64);
    EXPECT_EQ(in.slots[kWindow](r), (1000 + 100 * r + position / 64) * 64 + position % 64);
    EXPECT_EQ(in.pages[kFull](r, position / 64), 100 * r + position / 64);
    EXPECT_EQ(in.pages[kFull](r, d.shape.columns - 1), -1) << "a page that it does not have";
  }
}

TEST_F(GpuSteps, WhereAllRowsAreTilesThoseOfDecodingHaveOneRowAndPaddingNone) {
  StepPlan plan;
  for (int s = 0; s < 5; ++s)
    plan.entries.push_back({.sequence = &sequence(70), .first = 69, .rows = 1, .samples = true});
  const auto d = described(plan, passes_of(plan, kSingle, 512)[0],
                           {.single_rows = kSingle, .max_context = 4096, .tiles_only = true});
  ASSERT_EQ(d.shape.rows, 8);
  ASSERT_EQ(d.shape.tiles, 8);
  EXPECT_FALSE(d.shape.has_prompts());
  for (int32_t t = 0; t < 8; ++t) {
    const kernels::PromptTile& tile = d.input->tiles(t);
    EXPECT_EQ(tile.rows, t < 5 ? 1 : 0);
    if (t < 5) {
      EXPECT_EQ(tile.row, t);
      EXPECT_EQ(tile.sequence, t);
    }
  }
  const auto batch = d.input->batch(d.shape, {});
  EXPECT_EQ(batch.single_rows, 0) << "no row is attended to twice";
  EXPECT_EQ(batch.tiles.extent(0), 8);
}

TEST_F(GpuSteps, ShapesOfDecodingDependOnRowsAndReachAlone) {
  StepPlan plan;
  for (int s = 0; s < 3; ++s)
    plan.entries.push_back({.sequence = &sequence(1000 + s), .first = 999 + s, .rows = 1, .samples = s != 1});
  const auto shape = [&](int64_t first) {
    plan.entries[2].first = first;
    return shape_of(plan, passes_of(plan, kSingle, 64)[0], {.single_rows = kSingle, .max_context = 3000},
                    kLogitRoom);
  };
  EXPECT_EQ(shape(1023).longest(), 1024);
  EXPECT_EQ(shape(1024).longest(), 2048);
  EXPECT_EQ(shape(2048).longest(), 3008) << "no further than a context, in whole pages";
  EXPECT_EQ(shape(5).chosen, 4) << "as many as there are rows, whoever samples";
}

TEST_F(GpuSteps, WithoutRoundingShapesHaveTheRowsThereAre) {
  StepPlan plan;
  for (int s = 0; s < 11; ++s)
    plan.entries.push_back({.sequence = &sequence(70), .first = 69, .rows = 1, .samples = true});
  const auto pass = passes_of(plan, kSingle, 64)[0];
  const auto d    = described(plan, pass, {.single_rows = kSingle, .max_context = 4096, .round_rows = false});
  EXPECT_EQ(d.shape.rows, 11);
  EXPECT_EQ(d.shape.chosen, 11);
  EXPECT_EQ(d.shape.longest(), 1024) << "how far they reach is rounded all the same";
  EXPECT_EQ(d.input->positions(10), 69);
}

// Many prompts of a few rows: more rows than there may be tokens to choose.
TEST_F(GpuSteps, ShapesAreNotRoundedWhereThereIsNoRoomForTheLogits) {
  StepPlan plan;
  for (int s = 0; s < 10; ++s)
    plan.entries.push_back({.sequence = &sequence(4), .first = 0, .rows = 4, .samples = true});
  const auto pass = passes_of(plan, kSingle, 512);
  ASSERT_EQ(pass.size(), 1u);
  const GpuPassRules rules{.single_rows = kSingle, .max_context = 4096};
  const auto chosen = [&](int64_t room) { return shape_of(plan, pass[0], rules, room).chosen; };
  EXPECT_EQ(chosen(40), 40);
  EXPECT_EQ(chosen(39), 10);
  const GpuPassShape shape = shape_of(plan, pass[0], rules, 10);
  EXPECT_EQ(shape.rows, 40);
  EXPECT_EQ(shape.single_rows, 40);
  EXPECT_EQ(shape.sequences, 10);
}

// Rows of prompts and of single entries, drafts, and prompts that several passes share.
class GpuStepTiles : public GpuSteps, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(TilesOnly, GpuStepTiles, testing::Bool());

TEST_P(GpuStepTiles, EveryRowIsInOneTileOrStandsForItself) {
  const bool tiles_only = GetParam();
  StepPlan plan;
  plan.entries.push_back({.sequence = &sequence(300), .first = 37, .rows = 200});
  plan.entries.push_back(
      {.sequence = &sequence(80), .first = 79, .rows = 3, .drafts = {5, 6}, .samples = true});
  plan.entries.push_back({.sequence = &sequence(700), .first = 0, .rows = 700, .samples = true});
  plan.entries.push_back({.sequence = &sequence(10), .first = 9, .rows = 1, .samples = true});
  std::map<std::pair<size_t, int64_t>, int> seen;  // rows by entry and position
  std::vector<std::pair<size_t, int64_t>> chosen;  // likewise
  for (const auto& pass : passes_of(plan, kSingle, 256)) {
    const auto d =
        described(plan, pass, {.single_rows = kSingle, .max_context = 4096, .tiles_only = tiles_only});
    const GpuPassInput& in = *d.input;
    ASSERT_LE(d.shape.rows, 256);
    std::set<int64_t> in_tiles;
    for (int64_t t = 0; t < d.shape.tiles; ++t) {
      const kernels::PromptTile& tile = in.tiles(t);
      if (tiles_only && tile.rows == 0) continue;  // padding
      ASSERT_GT(tile.rows, 0);
      ASSERT_LE(tile.rows, kernels::kPromptRows);
      EXPECT_EQ(in.positions(tile.row) / 64, (in.positions(tile.row) + tile.rows - 1) / 64) << "two pages";
      for (int32_t r = tile.row; r < tile.row + tile.rows; ++r) {
        EXPECT_EQ(in.sequence(r), tile.sequence);
        EXPECT_EQ(in.positions(r), in.positions(tile.row) + r - tile.row);
        EXPECT_TRUE(in_tiles.insert(r).second) << "row " << r << " is in two tiles";
      }
    }
    for (int64_t r = 0; r < d.shape.rows; ++r) {
      EXPECT_EQ(in_tiles.contains(r), tiles_only ? in.positions(r) >= 0 : r >= d.shape.single_rows) << r;
      if (in.positions(r) < 0) continue;
      const size_t entry = pass[static_cast<size_t>(in.sequence(r))].entry;
      const auto place   = in.positions(r);
      ++seen[{entry, place}];
      const auto& drafts = plan.entries[entry].drafts;
      const int64_t own =
          plan.entries[entry].first + plan.entries[entry].rows - static_cast<int64_t>(drafts.size());
      EXPECT_EQ(in.tokens(r), place < own ? 7 * place % 1000 : drafts[static_cast<size_t>(place - own)]);
    }
    for (int64_t c = 0; c < d.shape.chosen; ++c)
      if (in.chosen_rows(c) >= 0)
        chosen.emplace_back(pass[static_cast<size_t>(in.sequence(in.chosen_rows(c)))].entry,
                            in.positions(in.chosen_rows(c)));
  }
  size_t rows = 0;
  for (size_t e = 0; e < plan.entries.size(); ++e)
    for (int64_t r = 0; r < plan.entries[e].rows; ++r, ++rows) {
      const int times = seen[{e, plan.entries[e].first + r}];
      EXPECT_EQ(times, 1) << "entry " << e << " row " << r;
    }
  EXPECT_EQ(seen.size(), rows);
  EXPECT_EQ(chosen, (std::vector<std::pair<size_t, int64_t>>{{1, 79}, {1, 80}, {1, 81}, {3, 9}, {2, 699}}));
}

}  // namespace
}  // namespace fathom::engine
