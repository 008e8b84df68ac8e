#include "train/dataset.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/rng.h"
#include "core/strict_json.h"
#include "model/harmony.h"
#include "model/harmony_answer.h"

namespace fathom::train {
namespace {

using ExampleJson = nlohmann::json;
using model::HarmonyMessage;

// Tokens, and from which one on they are learnt.
struct Learnt {
  std::vector<int32_t> tokens;
  size_t from = 0;
};

std::optional<std::string> text_in(const ExampleJson& object, const char* field) {
  if (!object.is_object() || !object.contains(field) || !object[field].is_string()) return {};
  return object[field].get<std::string>();
}

class Renderer {
 public:
  explicit Renderer(const model::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // A completion ends with the token that ends a text; a text alone does not.
  Result<Learnt> plain(std::string_view prompt, std::string_view completion, bool ends) {
    if (!checkpoint_.tokenizer) return no_tokenizer();
    Learnt learnt;
    if (const Status status = add(prompt, learnt.tokens); !status) return status.error();
    learnt.from = learnt.tokens.size();
    if (const Status status = add(completion, learnt.tokens); !status) return status.error();
    if (ends && !checkpoint_.eos_ids.empty()) learnt.tokens.push_back(end_of_text());
    return learnt;
  }

  // The answer to the messages: its analysis, if there is one, and its final channel.
  Result<Learnt> chat(std::vector<HarmonyMessage> messages, std::string_view thinking,
                      std::string_view answer) {
    if (!checkpoint_.tokenizer) return no_tokenizer();
    if (!checkpoint_.harmony)
      return Error{
          "the model's tokenizer has no chat format: give \"prompt\" and \"completion\", or \"text\""};
    if (!checkpoint_.system_prompt.empty() && (messages.empty() || messages.front().role != "system"))
      messages.insert(messages.begin(), {.role = "system", .content = checkpoint_.system_prompt});
    auto prompt = model::render_harmony(*checkpoint_.tokenizer, *checkpoint_.harmony, messages);
    if (!prompt) return prompt.error();
    Learnt learnt{.tokens = std::move(prompt).value()};
    learnt.from       = learnt.tokens.size();
    const auto tokens = model::harmony_answer(*checkpoint_.tokenizer, *checkpoint_.harmony, thinking, answer);
    if (!tokens) return tokens.error();
    learnt.tokens.insert(learnt.tokens.end(), tokens->begin(), tokens->end());
    return learnt;
  }

 private:
  model::TokenId end_of_text() const {
    const auto& ends = checkpoint_.eos_ids;
    const bool harmony =
        checkpoint_.harmony && std::ranges::find(ends, checkpoint_.harmony->endoftext) != ends.end();
    return harmony ? checkpoint_.harmony->endoftext : ends.front();
  }
  static Error no_tokenizer() {
    return {"the model has no tokenizer.json, so texts have no tokens: give \"input_ids\""};
  }
  Status add(std::string_view text, std::vector<int32_t>& to) const {
    const auto ids = checkpoint_.tokenizer->encode(text);
    if (!ids) return ids.error();
    to.insert(to.end(), ids->begin(), ids->end());
    return Ok{};
  }
  const model::Checkpoint& checkpoint_;
};

Result<Learnt> chat_of(const ExampleJson& messages, Renderer& renderer) {
  if (!messages.is_array() || messages.empty()) return Error{"\"messages\" is no list of messages"};
  std::vector<HarmonyMessage> before;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = text_in(messages[i], "role"), content = text_in(messages[i], "content");
    if (!role || !content)
      return Error{fmt::format("message {} needs a \"role\" and a \"content\", both texts", i)};
    if (i + 1 == messages.size()) {
      if (*role != "assistant")
        return Error{
            fmt::format("the last message is of {}: it is the assistant's that is learnt", in_quotes(*role))};
      return renderer.chat(std::move(before), text_in(messages[i], "thinking").value_or(""), *content);
    }
    before.push_back({.role = *role, .channel = *role == "assistant" ? "final" : "", .content = *content});
  }
  return Error{"\"messages\" is empty"};
}

// Token ids of the vocabulary; -1 for `not_learnt`, where there is such a label.
Result<std::vector<int32_t>> ids_in(const ExampleJson& list, const char* field,
                                    std::optional<int64_t> not_learnt, int64_t vocabulary) {
  if (!list.is_array()) return Error{fmt::format("\"{}\" is no list of token ids", field)};
  std::vector<int32_t> ids;
  for (const ExampleJson& id : list) {
    if (!id.is_number_integer())
      return Error{fmt::format("\"{}\" has {} where a token id belongs", field,
                               id.is_number() ? id.dump() : std::string(id.type_name()))};
    if (not_learnt && id == *not_learnt) {
      ids.push_back(-1);
      continue;
    }
    if (id < 0 || id >= vocabulary)
      return Error{fmt::format("\"{}\" has {}, and the model's vocabulary has ids 0 to {}", field, id.dump(),
                               vocabulary - 1)};
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// A token's target is the next one, where that one is learnt.
Example example_of(const Learnt& learnt) {
  Example example{.tokens = learnt.tokens, .targets = std::vector<int32_t>(learnt.tokens.size(), -1)};
  for (size_t i = 0; i + 1 < learnt.tokens.size(); ++i)
    if (i + 1 >= learnt.from) example.targets[i] = learnt.tokens[i + 1];
  return example;
}

Result<Example> example_in(const ExampleJson& object, const model::Checkpoint& checkpoint) {
  Renderer renderer(checkpoint);
  const auto made = [](Result<Learnt> learnt) -> Result<Example> {
    if (!learnt) return learnt.error();
    return example_of(*learnt);
  };
  if (!object.is_object()) return Error{"it is no JSON object"};
  if (object.contains("messages")) return made(chat_of(object["messages"], renderer));
  const auto prompt = text_in(object, "prompt");
  if (const auto answer = text_in(object, "answer"); prompt && answer)
    return made(renderer.chat({{.role = "user", .content = *prompt}}, text_in(object, "thought").value_or(""),
                              *answer));
  if (const auto completion = text_in(object, "completion"); prompt && completion)
    return made(renderer.plain(*prompt, *completion, true));
  if (const auto text = text_in(object, "text")) return made(renderer.plain("", *text, false));
  if (object.contains("input_ids")) {
    const int64_t V = checkpoint.config.vocab_size;
    auto tokens     = ids_in(object["input_ids"], "input_ids", {}, V);
    if (!tokens) return tokens.error();
    Example example = example_of({.tokens = std::move(tokens).value()});
    if (!object.contains("labels")) return example;
    // Hugging Face's: a label is the token at its own place, and is learnt by the one before.
    const auto labels = ids_in(object["labels"], "labels", -100, V);
    if (!labels) return labels.error();
    if (labels->size() != example.tokens.size())
      return Error{fmt::format("there are {} labels for {} tokens", labels->size(), example.tokens.size())};
    for (size_t i = 0; i + 1 < labels->size(); ++i) example.targets[i] = (*labels)[i + 1];
    return example;
  }
  for (const char* field : {"prompt", "answer", "completion", "text"})
    if (object.contains(field) && !object[field].is_string())
      return Error{fmt::format("\"{}\" is no text", field)};
  return Error{
      "it has none of \"messages\", \"prompt\" with \"answer\" or \"completion\", \"text\" and "
      "\"input_ids\""};
}

}  // namespace

int64_t Example::counted() const {
  return TokenBatch{.tokens = tokens, .targets = targets, .first_row = {}}.counted();
}

Result<Example> parse_example(std::string_view line, const model::Checkpoint& checkpoint,
                              int64_t max_tokens) {
  const auto object = parse_strict_json(line);
  if (!object) return Error{"it is no JSON: " + object.error().message};
  auto example = example_in(*object, checkpoint);
  if (!example) return example.error();
  const auto length = static_cast<int64_t>(example->tokens.size());
  if (length > max_tokens) {
    example->tokens.resize(static_cast<size_t>(max_tokens));
    example->targets.resize(static_cast<size_t>(max_tokens));
    example->targets.back() = -1;
  }
  if (example->counted() == 0)
    return Error{length > max_tokens
                     ? fmt::format("its first {} of {} tokens hold nothing to learn: raise --max-length",
                                   max_tokens, length)
                     : std::string("there is nothing to learn in it")};
  return example;
}

Result<std::vector<Example>> read_examples(const std::filesystem::path& file,
                                           const model::Checkpoint& checkpoint, int64_t max_tokens) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file))
    return Error{fmt::format("{}: cannot be read: is the name right?", file.string())};
  std::vector<Example> examples;
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto example = parse_example(line, checkpoint, max_tokens);
    if (!example) return Error{fmt::format("{}:{}: {}", file.string(), number, example.error().message)};
    examples.push_back(std::move(example).value());
  }
  if (in.bad()) return Error{fmt::format("{}: reading it failed", file.string())};
  if (examples.empty())
    return Error{
        fmt::format("{}: holds no examples: one JSON object a line, as in docs/training.md", file.string())};
  return examples;
}

uint64_t fingerprint(const std::vector<Example>& examples) {
  uint64_t hash = 0;
  for (const Example& example : examples)
    for (const auto* numbers : {&example.tokens, &example.targets})
      hash = XXH3_64bits_withSeed(numbers->data(), numbers->size() * sizeof(int32_t), hash + numbers->size());
  return hash;
}

Batches::Batches(const std::vector<Example>& examples, int64_t tokens, uint64_t seed)
    : examples_(examples), tokens_(tokens), seed_(seed), order_(examples.size()) {}

double Batches::epochs() const { return static_cast<double>(taken_) / static_cast<double>(examples_.size()); }

TokenBatch Batches::next() {
  const auto count = static_cast<int64_t>(examples_.size());
  batch_tokens_.clear(), batch_targets_.clear();
  first_row_.assign(1, 0);
  for (;;) {
    if (taken_ % count == 0)
      fill_permutation(order_.data(), count, seed_ + static_cast<uint64_t>(taken_ / count), count);
    const Example& example = examples_[static_cast<size_t>(order_[static_cast<size_t>(taken_ % count)])];
    const auto more        = static_cast<int64_t>(batch_tokens_.size() + example.tokens.size());
    if (!batch_tokens_.empty() && more > tokens_) break;
    batch_tokens_.insert(batch_tokens_.end(), example.tokens.begin(), example.tokens.end());
    batch_targets_.insert(batch_targets_.end(), example.targets.begin(), example.targets.end());
    first_row_.push_back(more);
    ++taken_;
    if (more >= tokens_ || taken_ % count == 0) break;
  }
  return {.tokens = batch_tokens_, .targets = batch_targets_, .first_row = first_row_};
}

}  // namespace fathom::train
