#include "engine/row_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/result.h"

namespace fathom::engine {
namespace {

using model::TokenId;

constexpr const char* kNoDistribution =
    "the logits are no distribution, with a NaN or an infinity among them: the weights are damaged or an op "
    "is wrong; `fathom model inspect` checks the weights";

// `choose(r, answer)` gives the token of row r after `answer`.
template <class Choose>
void go_through_rows(const StepEntry& entry, StepOutput& output, Choose&& choose) {
  const Sequence& sequence = *entry.sequence;
  const Request& request   = sequence.request;
  std::vector<TokenId> longer;  // the answer with drafts that were right
  for (size_t r = 0; r <= entry.drafts.size(); ++r) {
    std::span<const TokenId> answer = sequence.answer();
    if (r > 0) {
      if (r == 1) longer.assign(answer.begin(), answer.end());
      longer.push_back(output.tokens.back().id);
      answer = longer;
    }
    Result<Sampled> sampled = choose(r, answer);
    if (!sampled) {
      output.error = sampled.error().message;
      return;
    }
    const TokenId id = sampled->id;
    output.tokens.push_back(std::move(sampled).value());
    if (request.constraint) request.constraint->accept(id);
    const bool stop =
        std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
    if (r == entry.drafts.size() || id != entry.drafts[r] || stop) {
      output.rejected = static_cast<int64_t>(entry.drafts.size() - r);
      return;
    }
  }
}

void choose(Sampler& sampler, const RowsToChoose& rows, size_t vocab) {
  const Request& request = rows.entry->sequence->request;
  go_through_rows(*rows.entry, *rows.output, [&](size_t r, std::span<const TokenId> answer) {
    Restriction restriction{.constraint = request.constraint.get()};
    if (static_cast<int64_t>(answer.size()) < request.min_tokens) restriction.forbidden = request.stop_ids;
    return sampler.sample({rows.logits + r * vocab, vocab}, request.sampling, request.prompt, answer,
                          restriction);
  });
}

}  // namespace

void choose_from_rows(std::span<const RowsToChoose> asking, int64_t vocab_size, ThreadPool& threads,
                      std::span<Sampler> samplers) {
  threads.run([&](int worker) {
    for (auto a = static_cast<size_t>(worker); a < asking.size(); a += samplers.size())
      choose(samplers[static_cast<size_t>(worker)], asking[a], static_cast<size_t>(vocab_size));
  });
}

void take_chosen(const StepEntry& entry, std::span<const TokenId> chosen, StepOutput& output) {
  go_through_rows(entry, output, [&](size_t r, std::span<const TokenId>) -> Result<Sampled> {
    if (chosen[r] < 0) return Error{kNoDistribution};
    return Sampled{.id = chosen[r]};
  });
}

}  // namespace fathom::engine
