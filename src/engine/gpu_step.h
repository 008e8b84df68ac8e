// What a forward pass on the GPU needs to know of its rows, as arrays that lie one behind the other, so that
// one copy brings them there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/view.h"
#include "engine/scheduler.h"
#include "kernels/paged_attention_many.h"
#include "kernels/token_choice.h"
#include "model/gpt_oss_gpu.h"

namespace fathom::engine {

// How passes are cut for the kernels, and rounded.
struct GpuPassRules {
  int64_t single_rows = 0;  // entries of so few rows are computed row by row, as decoding is
  int64_t max_context = 0;
  // Rows of passes without prompts are rounded up to one of few numbers.
  bool round_rows = true;
  // Rows that stand for themselves are tiles of one row, so that all rows meet the same kernel.
  bool tiles_only = false;
};

// Extents of a pass, padding included. Those of passes without prompts are equal where rows and columns are.
struct GpuPassShape {
  int64_t rows = 0, single_rows = 0, tiles = 0;
  bool tiles_only   = false;           // single rows are tiles too, the first ones
  int64_t sequences = 0, columns = 0;  // of the tables of pages
  int64_t chosen = 0;                  // rows whose next token is wanted

  bool has_prompts() const { return rows > single_rows; }
  int64_t longest() const;  // positions that the tables reach
};

// The arrays, in memory that begins at `base`, on the host or on the device.
struct GpuPassInput {
  GpuPassInput(const GpuPassShape& shape, std::byte* base);

  View<int32_t, 1> tokens, source, positions, sequence;
  std::array<View<int32_t, 1>, kGroups> slots;
  std::array<View<int32_t, 2>, kGroups> pages;
  View<kernels::PromptTile, 1> tiles;
  View<int32_t, 1> chosen_rows;
  View<kernels::TokenRule, 1> rules;
  int64_t bytes = 0;

  model::GpuBatch batch(const GpuPassShape& shape, View<const int32_t, 1> sampled) const;
};

// Rows first .. first + rows of an entry of a plan, in one pass.
struct GpuPiece {
  size_t entry  = 0;
  int64_t first = 0, rows = 0;
  int64_t chosen = 0;  // the last ones of them that sample
};

// The pieces of a plan, in passes of at most `max_rows` rows: entries of a few rows, which are computed one
// by one, first, then prompts, which may be cut.
std::vector<std::vector<GpuPiece>> passes_of(const StepPlan& plan, int64_t single_rows, int64_t max_rows);

// The shape of a pass. Without prompts it is rounded up, to one of few in which every row's token is wanted,
// as long as there is room for the logits of so many rows.
GpuPassShape shape_of(const StepPlan& plan, std::span<const GpuPiece> pass, const GpuPassRules& rules,
                      int64_t logit_room);

// Fills in what the host knows: all but `source` and `rules`. Padding is marked as such.
void describe(const StepPlan& plan, std::span<const GpuPiece> pass, const GpuPassShape& shape,
              const GpuPassInput& input);

// Numbers of rows to which passes without prompts are rounded up: 1, 2, 4, 8, then in steps that waste at
// most a quarter.
int64_t padded_rows(int64_t rows);

}  // namespace fathom::engine
