#include "cli/engine_flags.h"

#include <cstdint>
#include <string>

namespace fathom::cli {

void add_engine_flags(CLI::App& verb, EngineFlags& flags) {
  engine::EngineConfig& c = flags.config;
  const auto number       = [&](const char* name, auto& value, const char* help, int64_t least = 1) {
    verb.add_option(name, value, help)
        ->check(CLI::Range(least, int64_t{1} << 40))
        ->capture_default_str()
        ->group("Engine");
  };
  verb.add_option("--threads", c.threads, "CPU threads; 0: one for each CPU")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Engine");
  number("--max-model-len", c.max_context, "Tokens of a sequence, prompt and answer");
  number("--max-num-seqs", c.max_sequences, "Sequences running at once");
  number("--max-num-batched-tokens", c.step_tokens, "Rows of a step");
  number("--kv-tokens", c.kv_tokens, "Tokens whose keys and values fit, of all sequences together");
  number("--block-size", c.page_size, "Tokens of a page of the KV cache");
  number("--max-queued-requests", c.max_queued_requests, "Requests that may wait; more are refused");
  number("--max-queued-tokens", c.max_queued_tokens, "Tokens of their prompts");
  number("--draft-tokens", c.draft_tokens, "Tokens drafted by n-grams and verified at once; 0: none", 0);
  number("--draft-sequences", c.draft_sequences, "Drafting pauses while more sequences than this run");
  const auto off = [&](const char* name, bool& feature, const char* help) {
    verb.add_flag_callback(
            name, [&feature] { feature = false; }, help)
        ->group("Engine");
  };
  off("--no-continuous-batching", c.continuous_batching, "Batches of 8, each until its last request ends");
  off("--no-paged-kv", c.paged_kv, "A whole context's pages for each request");
  off("--no-prefix-cache", c.prefix_cache, "Compute equal beginnings again");
  off("--no-chunked-prefill", c.chunked_prefill, "Prompts in one piece");
  off("--no-async-scheduling", c.async_scheduling, "Schedule between steps, not during them");
  verb.add_flag("--baseline", flags.baseline, "All of them off: the plain engine to compare with")
      ->group("Engine");
}

}  // namespace fathom::cli
