#include "model/expert_table.h"

#include <fmt/format.h>

#include "core/expect.h"

namespace fathom::model {

ExpertTable::ExpertTable(int64_t ranks, const std::vector<Layer>& layers)
    : ranks_(ranks), experts_(layers.empty() ? 0 : std::ssize(layers.front())) {
  for (size_t l = 0; l < layers.size(); ++l) {
    FATHOM_EXPECT(std::ssize(layers[l]) == experts_, "all layers have the same number of experts");
    Holders& holders = layers_.emplace_back();
    holders.first.push_back(0);
    for (size_t e = 0; e < layers[l].size(); ++e) {
      const auto& of_expert = layers[l][e];
      FATHOM_EXPECT(!of_expert.empty(), fmt::format("no rank holds expert {} of layer {}", e, l));
      for (size_t i = 0; i < of_expert.size(); ++i)
        FATHOM_EXPECT(
            of_expert[i] < ranks && of_expert[i] > (i == 0 ? -1 : of_expert[i - 1]),
            fmt::format("the ranks of expert {} of layer {} are 0 to {}, ascending", e, l, ranks - 1));
      holders.ranks.insert(holders.ranks.end(), of_expert.begin(), of_expert.end());
      holders.first.push_back(static_cast<int32_t>(holders.ranks.size()));
    }
  }
}

void ExpertTable::choose_ranks(int64_t layer, int32_t position, std::span<const int32_t> experts,
                               std::span<int32_t> ranks) const {
  // Multiples of the golden ratio, modulo 1, fill the unit interval evenly along any arithmetic progression:
  // neighbours alternate, and so does every second or third token of a text with a rhythm.
  const uint64_t place   = uint32_t{static_cast<uint32_t>(position)} * 0x9E3779B9u;
  const Holders& holders = layers_[static_cast<size_t>(layer)];
  uint64_t turn          = 0;
  for (size_t k = 0; k < experts.size(); ++k) {
    const auto e        = static_cast<size_t>(experts[k]);
    const int32_t* of   = holders.ranks.data() + holders.first[e];
    const auto replicas = static_cast<uint64_t>(holders.first[e + 1] - holders.first[e]);
    ranks[k]            = replicas == 1 ? of[0] : of[((place * replicas >> 32) + turn++) % replicas];
  }
}

}  // namespace fathom::model
