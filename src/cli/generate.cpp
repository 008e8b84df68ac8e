// fathom generate: one prompt, one answer.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/offline_inference.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "core/read_file.h"
#include "core/thread_pool.h"
#include "lab/json_text.h"
#include "model/prompt_logits.h"

namespace fathom::cli {
namespace {

using model::TokenId;
using nlohmann::json;

struct GenerateFlags {
  OfflineInferenceFlags inference;
  std::string prompt, file, logits;
  std::vector<TokenId> prompt_ids;
  bool raw = false, json = false, dry_run = false;
};

std::string prompt_text(const GenerateFlags& flags) {
  if (flags.file.empty()) return flags.prompt;
  if (flags.file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  auto text = read_file(flags.file);
  if (!text) throw UsageError(text.error().message + ": --file takes a text, or - for standard input");
  return *std::move(text);
}

std::vector<TokenId> prompt_ids(const GenerateFlags& flags, const model::Checkpoint& checkpoint) {
  if (!flags.prompt_ids.empty()) return flags.prompt_ids;
  const std::string text            = prompt_text(flags);
  const model::Tokenizer& tokenizer = tokenizer_of(checkpoint);
  if (text.empty()) throw UsageError("the prompt is empty: ask something");
  if (flags.raw) return value_or_usage_error(tokenizer.encode(text, model::AddedTokens::recognised));
  const model::HarmonyMessage messages[] = {system_message(checkpoint, flags.inference),
                                            {.role = "user", .content = text}};
  return value_or_usage_error(model::render_harmony(tokenizer, harmony_of(checkpoint), messages));
}

// Writes rows of float32 in NumPy's format 1.0 as they come.
class NpyFile {
 public:
  NpyFile(const std::string& path, int64_t rows, int64_t columns)
      : file_(value_or_usage_error(NewFile::create(path, 0))) {
    std::string header =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
    constexpr size_t kPrefix = 10, kAlignment = 64;
    header.resize((kPrefix + header.size()) / kAlignment * kAlignment + kAlignment - kPrefix - 1, ' ');
    header += '\n';
    const auto size = static_cast<uint16_t>(header.size());
    write(std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 0xff) +
          static_cast<char>(size >> 8) + header);
  }

  void add(std::span<const float> row) {
    write({reinterpret_cast<const char*>(row.data()), row.size_bytes()});
  }
  void publish() { file_.publish(); }

 private:
  void write(std::string_view bytes) {
    file_.write(size_, std::as_bytes(std::span(bytes)));
    size_ += static_cast<int64_t>(bytes.size());
  }

  NewFile file_;
  int64_t size_ = 0;
};

void print_tokens(const std::vector<TokenId>& ids, const model::Checkpoint& checkpoint, bool as_json) {
  json tokens = json::array();
  for (const TokenId id : ids)
    tokens.push_back(checkpoint.tokenizer ? json(checkpoint.tokenizer->decode({&id, 1})) : json(nullptr));
  if (as_json)
    return fmt::print(
        "{}", lab::json_text({{"schema", "fathom.prompt/1"}, {"prompt_ids", ids}, {"tokens", tokens}}));
  for (size_t i = 0; i < ids.size(); ++i) fmt::print("{:>7}  {}\n", ids[i], tokens[i].dump());
}

json to_json(const std::vector<TokenId>& prompt, const Answer& answer, const StreamDecoder& reader,
             bool harmony, const OfflineEngine& offline) {
  const auto rate = [](const std::optional<double>& value) { return value ? json(*value) : json(nullptr); };
  json out        = {{"schema", "fathom.generate/1"},
                     {"prompt_ids", prompt},
                     {"output_ids", answer.ids},
                     {"text", nullptr},
                     {"messages", nullptr},
                     {"finish_reason", name_of(answer.finish)},
                     {"timings",
                      {{"prompt_ms", answer.prompt_s() * 1e3},
                       {"prompt_tokens_per_s", rate(answer.prompt_tokens_per_s())},
                       {"ttft_ms", answer.ttft_s() * 1e3},
                       {"decode_ms", answer.decode_s() * 1e3},
                       {"decode_tokens_per_s", rate(answer.decode_tokens_per_s())},
                       {"roof_tokens_per_s", nullptr}}}};
  if (offline.checkpoint().tokenizer) out["text"] = reader.final_text();
  if (offline.roof()) out["timings"]["roof_tokens_per_s"] = offline.roof()->tokens_per_s;
  if (!harmony) return out;
  out["messages"] = json::array();
  for (const model::HarmonyMessage& message : reader.messages())
    out["messages"].push_back({{"role", message.role},
                               {"channel", message.channel},
                               {"recipient", message.recipient},
                               {"content", message.content}});
  return out;
}

void print(const StreamDecoder::Piece& piece) {
  if (piece.channel != "final" || piece.text.empty()) return;
  fmt::print("{}", piece.text);
  std::fflush(stdout);
}

void generate(const GenerateFlags& flags) {
  const auto checkpoint             = open_checkpoint(flags.inference);
  const std::vector<TokenId> prompt = prompt_ids(flags, checkpoint);
  if (flags.dry_run) return print_tokens(prompt, checkpoint, flags.json);

  std::optional<NpyFile> logits;
  if (!flags.logits.empty())
    logits.emplace(flags.logits, static_cast<int64_t>(prompt.size()), checkpoint.config.vocab_size);
  OfflineEngine offline(flags.inference, checkpoint);
  const bool harmony = !flags.raw && flags.prompt_ids.empty();
  StreamDecoder reader(checkpoint, harmony);
  const Answer answer = offline.answer(prompt, [&](TokenId id) {
    const auto piece = reader.add(id);
    if (flags.json) return;
    if (checkpoint.tokenizer) return print(piece);
    fmt::print("{} ", id);
    std::fflush(stdout);
  });
  const auto rest     = reader.finish();
  if (logits) {
    const int threads = flags.inference.engine.config.threads;
    ThreadPool pool(threads > 0 ? threads : host_threads());
    model::prompt_logits(checkpoint, prompt, pool, [&](std::span<const float> row) { logits->add(row); });
    logits->publish();
  }
  if (flags.json) return fmt::print("{}", lab::json_text(to_json(prompt, answer, reader, harmony, offline)));
  if (checkpoint.tokenizer) print(rest);
  fmt::print("\n");
  std::fflush(stdout);
  if (harmony && reader.final_text().empty() && answer.finish == engine::FinishReason::length)
    fmt::print(stderr, "the {} tokens went by without a final answer: raise --max-tokens\n",
               answer.ids.size());
  fmt::print(stderr, "{}\n", offline.speed_text(answer));
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<GenerateFlags>();
  CLI::App& verb = *app.add_subcommand("generate", "The answer of a model to a prompt");
  auto& source   = *verb.add_option_group("prompt", "What it answers, one of");
  source.add_option("--prompt", flags->prompt, "A text");
  source.add_option("--file", flags->file, "A file's text; - for standard input");
  source.add_option("--prompt-ids", flags->prompt_ids, "Tokens, e.g. 1,2,3, as they are")->delimiter(',');
  source.require_option(1);
  add_offline_inference_flags(verb, flags->inference);
  verb.add_flag("--raw", flags->raw,
                "The text as it is, without harmony's template; control tokens may be in it");
  verb.add_flag("--json", flags->json,
                "Write one JSON object with tokens, text and times to standard output");
  verb.add_flag("--dry-run", flags->dry_run, "Show the prompt's tokens, and stop");
  verb.add_option(
      "--logits", flags->logits,
      "Write those of every token of the prompt, as CPUs compute them, to this file.npy, float32 [T, V]");
  verb.callback([flags, &exit_code] {
    generate(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
