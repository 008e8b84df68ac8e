// What an engine may use, and which of its features are on.
#pragma once

#include <cstdint>
#include <functional>

namespace fathom::engine {

inline constexpr int64_t kGpuPageSize = 64;  // tokens

struct EngineConfig {
  int threads           = 0;      // 0: one for each CPU that this process may use
  int64_t max_context   = 4096;   // tokens of a sequence, prompt and answer
  int64_t max_sequences = 64;     // running at once
  int64_t kv_tokens     = 32768;  // tokens whose keys and values fit, of all sequences together
  int64_t page_size     = 16;     // tokens
  int64_t step_tokens   = 512;    // rows of a step, at most; more where prompts are not cut

  // How keys and values are kept: in fp32 on CPUs, in bf16 on a GPU, or there in FP8, 1.88 times the tokens
  // in the same memory.
  enum class KvDtype { automatic, bf16, fp8 };
  KvDtype kv_dtype = KvDtype::automatic;

  bool gpu          = false;  // runs on this process's GPU, where kv_tokens = 0 is all that fits
  double gpu_memory = 0.9;    // share of the GPU's memory that may be in use, all in all

  // Requests beyond these are refused: waiting ones, and the tokens of their prompts.
  int64_t max_queued_requests = 512, max_queued_tokens = int64_t{1} << 20;

  // Requests join and leave at every step. Off: batches of static_batch in order of arrival; whoever has
  // finished is left out of the steps that follow, and nobody joins before all have.
  bool continuous_batching = true;
  int64_t static_batch     = 8;
  // Pages are taken when they are needed, and those behind a window given back. Off: a request takes the
  // pages of a whole context when it starts.
  bool paged_kv = true;
  // What requests have in common at their beginning is computed once, as long as its pages last.
  bool prefix_cache = true;
  // Prompts are read in pieces that fit in a step, beside everybody's next token. Off: whole.
  bool chunked_prefill = true;
  // The next step is scheduled while this one runs.
  bool async_scheduling = true;
  // How steps without prompts are launched on a GPU.
  enum class Graphs {
    none,    // every kernel by itself
    pieces,  // what lies between two attentions from a graph for the number of rows; attention by itself
    whole,   // the step from one graph, for the number of rows and how far back attention reaches
  };
  Graphs graphs = Graphs::whole;
  // Rows are rounded up to few numbers with rows of padding, and there is a graph for each before the first
  // request comes. Off: a graph for each number of rows, made when it first comes.
  bool graph_buckets = true;
  // A sequence's numbers, and so its greedy answer, depend on nothing but the sequence: not on who else is in
  // its steps, nor on how its prompt was cut, cached or computed anew. On CPUs that is so anyway; on a GPU it
  // costs, since one kernel and one order of sums must then do for all numbers of rows.
  bool batch_invariant = false;
  // Tokens drafted from what the sequence has said before, and verified all in one step; 0: none. The answer
  // is the same. Drafts need the last token, so steps are then scheduled one after the other.
  int64_t draft_tokens = 0;
  // Drafting pauses while more sequences than this run: their steps are no longer bound by memory.
  int64_t draft_sequences = 4;

  // Hears how many bytes of weights of how many have gone to the GPU.
  std::function<void(int64_t done, int64_t total)> loading = {};

  // On this process's GPU, with sizes that suit one.
  static EngineConfig on_gpu() {
    EngineConfig config;
    config.gpu           = true;
    config.max_sequences = 256;
    config.kv_tokens     = 0;
    config.page_size     = kGpuPageSize;
    config.step_tokens   = 8192;
    return config;
  }
  // The same sizes, all features off.
  EngineConfig plain() const {
    EngineConfig config        = *this;
    config.continuous_batching = config.paged_kv = config.prefix_cache = false;
    config.chunked_prefill = config.async_scheduling = false;

    config.graphs       = Graphs::none;
    config.draft_tokens = 0;
    return config;
  }
  // An honest plain engine, to compare with.
  static EngineConfig baseline() { return EngineConfig().plain(); }
};

}  // namespace fathom::engine
