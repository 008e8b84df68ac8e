#include "engine/rejection_sampler.h"

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

// sample(r, so_far) returns the token of row r after the output `so_far`.
template <class Sample>
void verify_drafts(const ScheduledSequence& scheduled, SequenceOutput& output, Sample&& sample) {
  const Sequence& sequence = *scheduled.sequence;
  const Request& request   = sequence.request;
  std::vector<TokenId> longer;  // the output with the accepted drafts
  for (size_t r = 0; r <= scheduled.drafts.size(); ++r) {
    std::span<const TokenId> so_far = sequence.output();
    if (r > 0) {
      if (r == 1) longer.assign(so_far.begin(), so_far.end());
      longer.push_back(output.tokens.back().id);
      so_far = longer;
    }
    Result<Sampled> sampled = sample(r, so_far);
    if (!sampled) {
      output.error = sampled.error().message;
      return;
    }
    const TokenId id = sampled->id;
    output.tokens.push_back(std::move(sampled).value());
    if (request.constraint) request.constraint->accept_token(id);
    const bool stop =
        std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
    if (r == scheduled.drafts.size() || id != scheduled.drafts[r] || stop) {
      output.rejected = static_cast<int64_t>(scheduled.drafts.size() - r);
      return;
    }
  }
}

void sample_sequence(Sampler& sampler, const SequenceLogits& rows, size_t vocab) {
  const Request& request = rows.scheduled->sequence->request;
  verify_drafts(*rows.scheduled, *rows.output, [&](size_t r, std::span<const TokenId> output) {
    Restriction restriction{.constraint = request.constraint.get()};
    if (static_cast<int64_t>(output.size()) < request.min_tokens) restriction.banned = request.stop_ids;
    return sampler.sample({rows.logits + r * vocab, vocab}, request.sampling, request.prompt, output,
                          restriction);
  });
}

}  // namespace

bool needs_raw_logits(const ScheduledSequence& scheduled) {
  const Request& request      = scheduled.sequence->request;
  const SamplingParameters& p = request.sampling;
  const int64_t answered = scheduled.first + scheduled.rows - static_cast<int64_t>(scheduled.drafts.size()) -
                           scheduled.sequence->num_prompt_tokens();
  return request.constraint || p.logprobs || p.repetition_penalty != 1 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0 || !p.logit_bias.empty() ||
         (!request.stop_ids.empty() && answered < request.min_tokens);
}

void sample_and_verify(std::span<const SequenceLogits> batch, int64_t vocab_size, ThreadPool& threads,
                       std::span<Sampler> samplers) {
  threads.run_shares([&](int worker) {
    for (auto s = static_cast<size_t>(worker); s < batch.size(); s += samplers.size())
      sample_sequence(samplers[static_cast<size_t>(worker)], batch[s], static_cast<size_t>(vocab_size));
  });
}

void verify_sampled(const ScheduledSequence& scheduled, std::span<const TokenId> sampled,
                    SequenceOutput& output) {
  verify_drafts(scheduled, output, [&](size_t r, std::span<const TokenId>) -> Result<Sampled> {
    if (sampled[r] < 0) return Error{kNoDistribution};
    return Sampled{.id = sampled[r]};
  });
}

}  // namespace fathom::engine
