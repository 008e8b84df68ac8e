#include "serve/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "serve/request_fields.h"

namespace fathom::serve {
namespace {

// A string, [string], [int] or [[int]].
std::vector<CompletionPrompt> read_prompts(const Field& prompt, const ServedModel& served) {
  if (!prompt.is_array()) {
    std::string text = prompt.text().value_or("");
    if (text.empty()) prompt.fail("is missing or empty: there is nothing to go on from");
    return {std::move(text)};
  }
  // A list of numbers is one prompt, limited by the context; a list of prompts is limited by kMaxChoices.
  const Field first = prompt.size(std::max(served.max_context, kMaxChoices)) > 0 ? prompt.at(0) : prompt;
  if (first.is_number()) return {prompt.token_ids(served.max_context, served.vocab_size)};

  std::vector<CompletionPrompt> found;
  const int64_t count = prompt.size(kMaxChoices);
  if (count == 0) prompt.fail("is empty: there is nothing to go on from");
  for (int64_t i = 0; i < count; ++i) {
    const Field one = prompt.at(i);
    if (first.is_array())
      found.emplace_back(one.token_ids(served.max_context, served.vocab_size));
    else
      found.emplace_back(one.text().value_or(""));
    if (std::visit([](const auto& tokens_or_text) { return tokens_or_text.empty(); }, found.back()))
      one.fail("is empty: there is nothing to go on from");
  }
  return found;
}

}  // namespace

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const ServedModel& served) {
  return read_body(body, [&](const Field& root) {
    CompletionRequest request{.prompts = read_prompts(root["prompt"], served),
                              .echo    = root["echo"].boolean().value_or(false),
                              .options = read_generation_options(root, served, root["max_tokens"])};
    GenerationOptions& options = request.options;
    options.format             = read_response_format(root, root["response_format"], Shape::nested);
    options.sampling.logprobs  = root["logprobs"].integer(0, kMaxLogprobs);
    if (!options.max_tokens && !root["n_predict"])
      options.max_tokens = std::min(served.max_context, std::max(kDefaultMaxTokens, options.min_tokens));

    const auto prompts = static_cast<int64_t>(request.prompts.size());
    if (prompts * options.n > kMaxChoices)
      root["n"].fail(fmt::format("is {} for each of {} prompts, but at most {} answers are given at once",
                                 options.n, prompts, kMaxChoices));
    if (root["best_of"].integer(1, kMaxChoices).value_or(options.n) != options.n)
      root["best_of"].fail("must be as `n`: all answers are returned, none is chosen");
    if (request.echo && options.sampling.logprobs)
      root["echo"].fail("goes without logprobs: those of a prompt's tokens are not computed");
    refuse_unsupported(root, {"suffix", "prompt_embeds"});
    return request;
  });
}

}  // namespace fathom::serve
