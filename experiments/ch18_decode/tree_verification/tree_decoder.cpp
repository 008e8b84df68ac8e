#include "tree_decoder.h"

#include <algorithm>
#include <utility>

#include "core/cpus.h"
#include "core/expect.h"
#include "lab/problem.h"
#include "model/bundled_model.h"
#include "model/ops.h"

namespace fathom::lab::tree_verification {

using model::TokenId;

std::vector<Node> tree_of(const std::vector<std::vector<model::Eagle::Drafted>>& places, int64_t nodes) {
  struct Candidate {
    size_t place, rank;
    double probability;
  };
  std::vector<Candidate> candidates;
  double path = 1;
  for (size_t place = 0; place < places.size(); ++place) {
    for (size_t rank = 0; rank < places[place].size(); ++rank)
      candidates.push_back({place, rank, path * places[place][rank].probability});
    path *= places[place].front().probability;
  }
  // Equal probabilities in order of place, so that a parent comes before its children.
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  std::vector<Node> tree;
  std::vector<int64_t> chain;  // the nodes of rank 0, by place
  for (const auto& [place, rank, probability] : candidates) {
    if (std::ssize(tree) == nodes) break;
    const int64_t parent = place == 0 ? -1 : chain[place - 1];
    if (rank == 0) chain.push_back(std::ssize(tree));
    tree.push_back({places[place][rank].token, parent, probability});
  }
  return tree;
}

TreeDecoder::TreeDecoder(const model::Checkpoint& checkpoint, const Shape& shape)
    : checkpoint_(checkpoint),
      shape_(shape),
      threads_(host_threads()),
      model_(checkpoint.config, checkpoint.weights, model::cpu_ops(), kMostRows, kMostRows, threads_),
      kv_(checkpoint.config, kMostPositions, kMostPositions, 1) {
  for (int32_t page = kMostPositions; page-- > 0;) free_pages_.push_back(page);
  if (shape.nodes == 0) return;
  auto drafter =
      model::Eagle::open(*model::bundled_model_folder() / "drafter", checkpoint, model::cpu_ops(), threads_);
  if (!drafter) throw Unavailable("needs_model", drafter.error().message);
  drafter_ = std::move(drafter).value();
  model_.tap(drafter_->taps());
}

int32_t TreeDecoder::new_page() {
  FATHOM_EXPECT(!free_pages_.empty(), "a text and its draft have at most kMostPositions positions");
  const int32_t page = free_pages_.back();
  free_pages_.pop_back();
  return page;
}

void TreeDecoder::step(std::span<const int32_t> tokens, std::span<const int32_t> positions,
                       const std::vector<std::vector<int32_t>>& tables) {
  const auto T = std::ssize(tokens), S = std::ssize(tables);
  // One sequence of all rows (a prompt), or a sequence for each row.
  std::vector<int32_t> first, all, pages;
  for (int64_t s = 0; s <= S; ++s) first.push_back(static_cast<int32_t>(s * T / S));
  size_t longest = 0;
  for (const auto& table : tables) longest = std::max(longest, table.size());
  for (const auto& table : tables) {
    pages.insert(pages.end(), table.begin(), table.end());
    pages.insert(pages.end(), longest - table.size(), -1);
  }
  for (int64_t t = 0; t < T; ++t) all.push_back(static_cast<int32_t>(t));
  const View<const int32_t, 2> table(pages.data(), {S, static_cast<int64_t>(longest)});
  model_.forward(
      {.tokens = {tokens.data(), {T}},
       .rows   = {.first_row = {first.data(), {S + 1}}, .positions = {positions.data(), {T}}, .pages = table},
       .window_pages = table},
      kv_);
  const int64_t V = checkpoint_.config.vocab_size;
  logits_.resize(static_cast<size_t>(T * V));
  model_.logits({all.data(), {T}}, {logits_.data(), {T, V}});
  argmax_.clear();
  for (int64_t t = 0; t < T; ++t) {
    const float* row = logits_.data() + t * V;
    argmax_.push_back(static_cast<TokenId>(std::max_element(row, row + V) - row));
  }
}

// The last step's `rows`, at consecutive positions, and the token that follows each.
void TreeDecoder::read_into_drafter(model::Eagle::State& state, std::span<const int64_t> rows,
                                    std::span<const TokenId> next) {
  const View<const float, 2> features = model_.features();
  const int64_t size                  = drafter_->feature_size();
  std::vector<float> gathered;
  for (const int64_t row : rows) gathered.insert(gathered.end(), &features(row, 0), &features(row, 0) + size);
  drafter_->read(state, {gathered.data(), {std::ssize(rows), size}}, next);
}

std::vector<int64_t> TreeDecoder::decode(std::span<const TokenId> prompt, int64_t max_tokens) {
  const auto P = std::ssize(prompt);
  FATHOM_EXPECT(P >= 1 && P <= kMostRows, "a prompt is one step");
  std::vector<int32_t> table, tokens(prompt.begin(), prompt.end()), positions;
  for (int32_t position = 0; position < P; ++position)
    table.push_back(new_page()), positions.push_back(position);
  step(tokens, positions, {table});
  std::vector<int64_t> output = {argmax_.back()};
  model::Eagle::State state;
  if (drafter_) {
    drafter_->restart(state, 0);
    std::vector<int64_t> rows;
    std::vector<TokenId> next(prompt.begin() + 1, prompt.end());
    for (int64_t row = 0; row < P; ++row) rows.push_back(row);
    next.push_back(argmax_.back());
    read_into_drafter(state, rows, next);
  }
  const auto ended = [&] {
    return std::ssize(output) >= max_tokens ||
           std::find(checkpoint_.eos_ids.begin(), checkpoint_.eos_ids.end(), output.back()) !=
               checkpoint_.eos_ids.end();
  };
  while (!ended()) {
    const auto root = static_cast<int32_t>(table.size());  // position of the last token, not computed yet
    const int64_t room =
        std::min({shape_.depth, max_tokens - std::ssize(output) - 1, kMostPositions - root - 1});
    std::vector<Node> tree;
    if (drafter_ && room > 0)
      tree = tree_of(drafter_->draft_places(state, room, shape_.width, 0), shape_.nodes);

    tokens.assign(1, static_cast<int32_t>(output.back()));
    positions.assign(1, root);
    std::vector<std::vector<int32_t>> tables = {table};
    tables[0].push_back(new_page());
    for (const Node& node : tree) {
      const auto parent = static_cast<size_t>(node.parent + 1);
      tokens.push_back(node.token);
      positions.push_back(positions[parent] + 1);
      tables.push_back(tables[parent]);
      tables.back().push_back(new_page());
    }
    step(tokens, positions, tables);

    std::vector<int64_t> rows;  // the accepted path
    std::vector<TokenId> next;
    for (int64_t row = 0; row >= 0;) {
      rows.push_back(row);
      next.push_back(argmax_[static_cast<size_t>(row)]);
      output.push_back(next.back());
      if (ended()) break;
      int64_t child = -1;
      for (size_t n = 0; n < tree.size(); ++n)
        if (tree[n].parent == row - 1 && tree[n].token == next.back()) child = static_cast<int64_t>(n) + 1;
      row = child;
    }
    table = tables[static_cast<size_t>(rows.back())];
    for (size_t row = 0; row < tables.size(); ++row)
      if (std::find(rows.begin(), rows.end(), static_cast<int64_t>(row)) == rows.end())
        free_pages_.push_back(tables[row].back());
    if (drafter_) read_into_drafter(state, rows, next);
    ++counts_.steps;
    counts_.rows += std::ssize(tables);
    counts_.drafted += std::ssize(tree);
    counts_.accepted += std::ssize(rows) - 1;
    counts_.tokens += std::ssize(rows);
  }
  free_pages_.insert(free_pages_.end(), table.begin(), table.end());
  return output;
}

}  // namespace fathom::lab::tree_verification
