#include "model/harmony_answer.h"

namespace fathom::model {

Result<std::vector<TokenId>> harmony_answer(const Tokenizer& tokenizer, const HarmonyTokens& control,
                                            std::string_view thinking, std::string_view answer) {
  std::vector<TokenId> tokens;
  const auto text = [&](std::string_view words) -> Status {
    const auto ids = tokenizer.encode(words);
    if (!ids) return ids.error();
    tokens.insert(tokens.end(), ids->begin(), ids->end());
    return Ok{};
  };
  const auto message = [&](std::string_view channel, std::string_view content, TokenId end) -> Status {
    tokens.push_back(control.channel);
    if (const Status status = text(channel); !status) return status;
    tokens.push_back(control.message);
    if (const Status status = text(content); !status) return status;
    tokens.push_back(end);
    return Ok{};
  };
  if (!thinking.empty()) {
    if (const Status status = message("analysis", thinking, control.end); !status) return status.error();
    tokens.push_back(control.start);
    if (const Status status = text("assistant"); !status) return status.error();
  }
  if (const Status status = message("final", answer, control.return_); !status) return status.error();
  return tokens;
}

}  // namespace fathom::model
