// Which ranks hold each expert of each layer, and which of them computes it for a token.
//
// An expert that several ranks hold has replicas. A token of it goes to one of them, so nothing is computed
// twice and no token is dropped, however hot the expert. All ranks have the same table and the same batch, so
// each finds alone what it computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::model {

class ExpertTable {
 public:
  // [expert]: the ranks that hold it, ascending, at least one.
  using Layer = std::vector<std::vector<int32_t>>;

  // Layers have the same number of experts; ranks are 0 .. ranks - 1.
  ExpertTable(int64_t ranks, const std::vector<Layer>& layers);

  int64_t ranks() const { return ranks_; }
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t experts() const { return experts_; }

  // Of a token at `position` of its sequence: the rank that computes each of its experts. The token's
  // replicated experts take their replicas in turn, beginning at one that its position says, so that
  // replicas get equal shares of any text. It depends on the token and the table alone: not on the batch,
  // whose other sequences must not change a token's order of summation.
  void choose_ranks(int64_t layer, int32_t position, std::span<const int32_t> experts,
                    std::span<int32_t> ranks) const;

 private:
  struct Holders {
    std::vector<int32_t> first;  // [experts + 1], into ranks
    std::vector<int32_t> ranks;
  };

  int64_t ranks_, experts_;
  std::vector<Holders> layers_;
};

}  // namespace fathom::model
