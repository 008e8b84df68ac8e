// A checkpoint folder, ready to run: one sequence at a time, on this machine's CPUs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "core/result.h"
#include "model/checkpoint.h"

namespace fathom::engine {

struct TextModelOptions {
  int threads         = 0;     // 0: one for each CPU that this process may use
  int64_t max_context = 4096;  // tokens of the sequence
};

class TextModel {
 public:
  static Result<TextModel> open(const std::filesystem::path& folder, const TextModelOptions& options);
  ~TextModel();
  TextModel(TextModel&&) noexcept;
  TextModel& operator=(TextModel&&) noexcept;

  const model::Checkpoint& checkpoint() const;
  int threads() const;

  int64_t context() const;  // tokens so far
  int64_t max_context() const;
  // Forgets positions from `keep` on.
  void reset(int64_t keep = 0);
  // Appends `tokens`, at least one, all in the vocabulary, and no more than fit in max_context. Returns the
  // logits [V] of the last of them, valid until the next call. `each` sees those of every one of them, in
  // order.
  std::span<const float> append(std::span<const model::TokenId> tokens,
                                const std::function<void(std::span<const float>)>& each = {});

 private:
  struct State;
  explicit TextModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom::engine
