#include "engine/gpu_step.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::engine {
namespace {

constexpr int64_t kPage       = kernels::kTile;
constexpr int64_t kLeastReach = 1024;  // positions
constexpr int64_t kAlignment  = 16;

int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

}  // namespace

int64_t GpuPassShape::longest() const { return columns * kPage; }

GpuPassInput::GpuPassInput(const GpuPassShape& s, std::byte* base) {
  const auto take = [&]<class T, int Rank>(View<T, Rank>& view, const int64_t(&extents)[Rank]) {
    view = View<T, Rank>(reinterpret_cast<T*>(base + bytes), extents);
    bytes += (view.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (auto* view : {&tokens, &source, &positions, &sequence, &slots[kFull], &slots[kWindow]})
    take(*view, {s.rows});
  for (auto& view : pages) take(view, {s.sequences, s.columns});
  take(tiles, {s.tiles});
  take(chosen_rows, {s.chosen});
  take(rules, {s.chosen});
}

model::GpuBatch GpuPassInput::batch(const GpuPassShape& shape, View<const int32_t, 1> sampled) const {
  return {.tokens      = tokens,
          .source      = source,
          .sampled     = sampled,
          .positions   = positions,
          .sequence    = sequence,
          .single_rows = shape.tiles_only ? 0 : shape.single_rows,
          .tiles       = tiles,
          .longest     = shape.longest(),
          .full        = {.slots = slots[kFull], .pages = pages[kFull]},
          .window      = {.slots = slots[kWindow], .pages = pages[kWindow]}};
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

std::vector<std::vector<GpuPiece>> passes_of(const StepPlan& plan, int64_t single_rows, int64_t max_rows) {
  std::vector<std::vector<GpuPiece>> passes;
  int64_t room   = 0;
  const auto add = [&](size_t e, bool may_cut) {
    const StepEntry& entry = plan.entries[e];
    const int64_t chosen   = entry.samples ? 1 + static_cast<int64_t>(entry.drafts.size()) : 0;
    for (int64_t row = 0; row < entry.rows;) {
      if (room == 0 || (!may_cut && room < entry.rows)) passes.emplace_back(), room = max_rows;
      const int64_t rows = std::min(room, entry.rows - row);
      const bool last    = row + rows == entry.rows;
      passes.back().push_back({.entry = e, .first = row, .rows = rows, .chosen = last ? chosen : 0});
      row += rows;
      room -= rows;
    }
  };
  for (size_t e = 0; e < plan.entries.size(); ++e)
    if (plan.entries[e].rows <= single_rows) add(e, false);
  for (size_t e = 0; e < plan.entries.size(); ++e)
    if (plan.entries[e].rows > single_rows) add(e, true);
  return passes;
}

GpuPassShape shape_of(const StepPlan& plan, std::span<const GpuPiece> pass, const GpuPassRules& rules,
                      int64_t logit_room) {
  GpuPassShape shape{.tiles_only = rules.tiles_only};
  int64_t longest = 0;
  for (const GpuPiece& piece : pass) {
    const StepEntry& entry = plan.entries[piece.entry];
    const int64_t first    = entry.first + piece.first;
    longest                = std::max(longest, first + piece.rows);
    shape.rows += piece.rows;
    shape.chosen += piece.chosen;
    if (entry.rows <= rules.single_rows)
      shape.single_rows += piece.rows;
    else
      shape.tiles += pages_for(first % kPage + piece.rows);
  }
  shape.sequences       = static_cast<int64_t>(pass.size());
  shape.columns         = pages_for(longest);
  const int64_t rounded = rules.round_rows ? padded_rows(shape.rows) : shape.rows;
  if (!shape.has_prompts() && rounded <= logit_room) {
    int64_t reach = kLeastReach;
    while (reach < longest) reach *= 2;
    shape.columns = pages_for(std::min(reach, std::max(longest, rules.max_context)));
    shape.rows = shape.single_rows = shape.sequences = shape.chosen = rounded;
  }
  if (rules.tiles_only) shape.tiles += shape.single_rows;
  return shape;
}

void describe(const StepPlan& plan, std::span<const GpuPiece> pass, const GpuPassShape& shape,
              const GpuPassInput& input) {
  int32_t row = 0, sequence = 0;
  int64_t tile = 0, chosen = 0;
  for (const GpuPiece& piece : pass) {
    const StepEntry& entry = plan.entries[piece.entry];
    const auto& tokens     = entry.sequence->tokens;
    const auto& runs       = entry.sequence->pages.runs;
    const int64_t own      = entry.rows - static_cast<int64_t>(entry.drafts.size());
    const int64_t begin = entry.first + piece.first, end = begin + piece.rows;
    for (int group = 0; group < kGroups; ++group) {
      const auto& pages   = runs[static_cast<size_t>(group)].pages;
      const int64_t count = std::min(static_cast<int64_t>(pages.size()), shape.columns);
      int32_t* to         = &input.pages[static_cast<size_t>(group)](sequence, 0);
      std::copy_n(pages.begin(), count, to);
      std::fill(to + count, to + shape.columns, -1);
    }
    const bool prompt = row >= shape.single_rows;
    for (int64_t position = begin; position < end; ++position, ++row) {
      if (prompt && (position == begin || position % kPage == 0))
        input.tiles(tile++) = {
            .row      = row,
            .rows     = static_cast<int32_t>(std::min(end, (position / kPage + 1) * kPage) - position),
            .sequence = sequence};
      if (!prompt && shape.tiles_only) input.tiles(tile++) = {.row = row, .rows = 1, .sequence = sequence};
      const int64_t r      = position - entry.first;
      input.tokens(row)    = r >= own ? entry.drafts[static_cast<size_t>(r - own)]
                             : position < static_cast<int64_t>(tokens.size())
                                 ? tokens[static_cast<size_t>(position)]
                                 : 0;
      input.source(row)    = -1;
      input.positions(row) = static_cast<int32_t>(position);
      input.sequence(row)  = sequence;
      for (size_t group = 0; group < kGroups; ++group) {
        const auto& pages       = runs[group].pages;
        const auto block        = static_cast<size_t>(position / kPage);
        input.slots[group](row) = block < pages.size() && pages[block] >= 0
                                      ? static_cast<int32_t>(pages[block] * kPage + position % kPage)
                                      : -1;
      }
    }
    for (int64_t c = 0; c < piece.chosen; ++c)
      input.chosen_rows(chosen++) = row - static_cast<int32_t>(piece.chosen - c);
    ++sequence;
  }
  for (; row < shape.rows; ++row) {
    if (shape.tiles_only) input.tiles(tile++) = {.row = 0, .rows = 0, .sequence = 0};
    input.tokens(row) = input.sequence(row) = 0;
    input.source(row) = input.positions(row) = -1;
    for (auto& slots : input.slots) slots(row) = -1;
  }
  for (; sequence < shape.sequences; ++sequence)
    for (auto& pages : input.pages) std::fill_n(&pages(sequence, 0), shape.columns, -1);
  for (; chosen < shape.chosen; ++chosen) input.chosen_rows(chosen) = -1;
  FATHOM_EXPECT(tile == shape.tiles, "a pass's tiles were counted wrong");
}

}  // namespace fathom::engine
