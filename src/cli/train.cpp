// fathom train: fine-tunes a checkpoint on a CPU, whole or by low-rank adapters.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/ctrl_c.h"
#include "cli/model_folder.h"
#include "cli/model_output.h"
#include "cli/number_check.h"
#include "cli/progress.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/cpus.h"
#include "core/exit_code.h"
#include "core/proc_meminfo.h"
#include "core/read_file.h"
#include "core/thread_pool.h"
#include "train/dataset.h"
#include "train/fine_tune.h"
#include "train/gpt_oss_trainer.h"
#include "train/save.h"
#include "train/training_state.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, train::Precision> kPrecisions = {{"fp32", train::Precision::fp32},
                                                             {"bf16", train::Precision::bf16},
                                                             {"fp8", train::Precision::fp8},
                                                             {"mxfp8", train::Precision::mxfp8},
                                                             {"nvfp4", train::Precision::nvfp4}};

struct TrainFlags {
  std::string model, data, eval_data, precision = "fp32";
  int64_t max_length = 1024, threads = 0;
  std::optional<double> weight_decay;
  int64_t save_steps = 0;
  bool resume        = false;
  train::FineTuneOptions options;
  ModelOutputFlags target;
};

// Losses, and what it took.
void print_summary(double before, double after, double seconds, int64_t tokens) {
  fmt::print("evaluation loss {:.4f} before, {:.4f} after; {} tokens in {}: {:.0f} tokens/s\n", before, after,
             tokens, duration_text(seconds), static_cast<double>(tokens) / seconds);
}

// What a step keeps, against what is free.
void check_memory(const fs::path& source, const model::Config& config, const train::FineTuneOptions& options,
                  const std::vector<train::Example>& examples) {
  int64_t tokens = 0, longest = 0;
  for (const train::Example& example : examples) {
    const auto length = static_cast<int64_t>(example.tokens.size());
    tokens += length, longest = std::max(longest, length);
  }
  tokens             = std::max(longest, std::min(tokens, options.batch_tokens));
  const int64_t size = model::footprint(config).parameters;
  // Weights, and of what is trained gradients and two moments; adapters themselves, too.
  const int64_t trained =
      options.lora_rank > 0 ? 16 * options.lora_rank * train::lora_parameters(config) : 12 * size;
  const int64_t bytes = 4 * size + trained + train::GptOssTrainer::kept_bytes(config, tokens);
  if (const auto free = proc_meminfo("MemAvailable"); free && bytes > *free)
    throw UsageError(fmt::format("{}: a step keeps {:.1f} GB, and {:.1f} GB are free: {}", source.string(),
                                 static_cast<double>(bytes) * 1e-9, static_cast<double>(*free) * 1e-9,
                                 options.lora_rank > 0
                                     ? "lower --batch-tokens"
                                     : "lower --batch-tokens, or train adapters (--lora-rank 8)"));
}

// What must be the same where a training goes on.
nlohmann::ordered_json identity_of(const TrainFlags& flags, const train::Parameters& parameters,
                                   const std::vector<train::Example>& examples) {
  const train::FineTuneOptions& o = flags.options;
  return {{"--steps", o.steps},
          {"--batch-tokens", o.batch_tokens},
          {"--max-length", flags.max_length},
          {"--learning-rate", o.learning_rate},
          {"--warmup-steps", o.warmup_steps},
          {"--weight-decay", o.optimizer.weight_decay},
          {"--max-grad-norm", o.max_grad_norm},
          {"--lora-rank", o.lora_rank},
          {"--lora-alpha", o.lora_alpha},
          {"--precision", flags.precision},
          {"--seed", o.seed},
          {"the hash of the examples", fmt::format("{:016x}", train::fingerprint(examples))},
          {"the hash of the model", fmt::format("{:016x}", train::fingerprint(parameters))}};
}

// The state to go on from; none: begin.
std::optional<train::SavedTraining> saved_training(const TrainFlags& flags) {
  const fs::path folder = flags.target.folder;
  if (!flags.resume && flags.target.force) return {};
  auto saved = value_or_usage_error(train::find_training_state(folder));
  if (!flags.resume && saved)
    throw UsageError(fmt::format(
        "{}: holds a training that got to step {}: go on with --resume, or begin anew with --force",
        folder.string(), saved->steps));
  if (flags.resume && !saved)
    throw UsageError(
        fmt::format("{}: holds no training to resume: leave --resume out (a training with "
                    "--save-steps, which has not ended, leaves one)",
                    folder.string()));
  return saved;
}

// The lines of the first steps of a log.
std::string log_up_to(const fs::path& file, int64_t steps) {
  const auto text = read_file(file);
  size_t end      = 0;
  for (int64_t step = 0; text && step < steps && end != std::string::npos; ++step)
    if (end = text->find('\n', end); end != std::string::npos) ++end;
  return text ? text->substr(0, end) : "";
}

void train_model(TrainFlags& flags) {
  const auto saved = saved_training(flags);
  if (!flags.resume) check_model_folder_free(flags.target);
  const fs::path source = model_folder(flags.model), folder = flags.target.folder;
  std::error_code none;
  if (fs::equivalent(source, folder, none))
    throw UsageError(fmt::format("{}: is the model that is trained: name another folder", folder.string()));
  const model::Checkpoint checkpoint = open_checkpoint(source);
  const auto examples = value_or_usage_error(train::read_examples(flags.data, checkpoint, flags.max_length));
  const auto evaluated =
      flags.eval_data.empty()
          ? std::vector<train::Example>()
          : value_or_usage_error(train::read_examples(flags.eval_data, checkpoint, flags.max_length));
  value_or_usage_error(train::can_save_checkpoint(folder, source, checkpoint));
  const int64_t rank = flags.options.lora_rank, most_rank = train::max_lora_rank(checkpoint.config);
  if (rank > most_rank)
    throw UsageError(fmt::format(
        "--lora-rank: {} is more than {}, the smallest width of this model's matrices", rank, most_rank));
  check_memory(source, checkpoint.config, flags.options, examples);

  ThreadPool threads(flags.threads > 0 ? static_cast<int>(flags.threads) : host_threads());
  flags.options.recipe.precision       = kPrecisions.at(flags.precision);
  flags.options.optimizer.weight_decay = flags.weight_decay.value_or(flags.options.lora_rank > 0 ? 0 : 0.1);
  const int64_t size                   = model::footprint(checkpoint.config).parameters;
  train::Parameters parameters         = train::parameters_of(checkpoint.config, checkpoint.weights);
  const auto identity                  = identity_of(flags, parameters, examples);
  if (saved)
    if (const auto change = train::first_change(saved->identity, identity))
      throw UsageError(fmt::format("{}: cannot be resumed: {}", folder.string(), *change));
  const auto evaluate = [&] {
    return evaluated.empty() ? 0
                             : train::mean_loss(checkpoint.config, parameters, evaluated,
                                                flags.options.batch_tokens, threads);
  };
  const double before = evaluate();
  fmt::print("{} examples, {} steps of up to {} tokens, {}{}\n", examples.size(), flags.options.steps,
             flags.options.batch_tokens,
             flags.options.lora_rank > 0
                 ? fmt::format("adapters of rank {}", flags.options.lora_rank)
                 : fmt::format("all {:.1f} million parameters", static_cast<double>(size) * 1e-6),
             flags.precision == "fp32" ? "" : fmt::format(", {} emulated", flags.precision));

  if (!flags.resume) train::remove_training_state(folder);  // with --force: it is given up
  const CtrlC ctrl_c;
  const auto start   = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int64_t tokens   = 0;
  bool ended_early = false;
  std::string log;
  const auto restore = [&](train::TrainingState& state) {
    value_or_usage_error(train::load_training_state(*saved, state));
    log = log_up_to(folder / "training_log.jsonl", state.steps);
    fmt::print("going on after step {}\n", state.steps);
  };
  const auto save = [&](const train::TrainingState& state) {
    value_or_usage_error(write_text_file(folder / "training_log.jsonl", log));
    value_or_usage_error(train::save_training_state(folder, state, identity, threads));
  };
  const int64_t every = std::max<int64_t>(1, flags.options.steps / 20);
  train::TrainingHooks hooks;
  if (saved) hooks.restore = restore;
  hooks.on_step = [&](const train::TrainingStep& step, const train::TrainingState& state) {
    tokens += step.tokens;
    log += nlohmann::ordered_json{{"step", step.step},           {"loss", step.loss},
                                  {"grad_norm", step.grad_norm}, {"learning_rate", step.learning_rate},
                                  {"epoch", step.epochs},        {"tokens", step.tokens},
                                  {"seconds", seconds()}}
               .dump() +
           "\n";
    if (step.step % every == 0 || step.step == 1 || step.step == flags.options.steps) {
      fmt::print("step {:>5}  loss {:.4f}  gradient {:.3f}  rate {:.2e}  epoch {:.2f}  {:.0f} tokens/s\n",
                 step.step, step.loss, step.grad_norm, step.learning_rate, step.epochs,
                 static_cast<double>(tokens) / seconds());
      std::fflush(stdout);
    }
    const bool ends = CtrlC::pressed(), last = step.step == flags.options.steps;
    const bool saves = (flags.save_steps > 0 || flags.resume) && !last;
    if (saves && (ends || (flags.save_steps > 0 && step.step % flags.save_steps == 0))) save(state);
    if (ends)
      fmt::print(stderr, "interrupted after step {}: what is trained is kept{}\n", step.step,
                 saves ? ", and --resume goes on" : "");
    ended_early = ends && saves;
    return !ends;
  };
  const auto lora = train::fine_tune(checkpoint.config, parameters, examples, flags.options, threads, hooks);
  const double took = seconds();
  train::round_to_bf16(parameters);  // what is saved is what is evaluated
  if (!evaluated.empty()) print_summary(before, evaluate(), took, tokens);

  fs::remove_all(folder / "adapter", none);  // another one's
  if (lora) value_or_usage_error(train::save_adapter(folder / "adapter", source, *lora, threads));
  const int64_t written = value_or_usage_error(train::save_checkpoint(folder, source, parameters, threads));
  value_or_usage_error(write_text_file(folder / "training_log.jsonl", log));
  if (!ended_early) train::remove_training_state(folder);
  fmt::print("{}: {:.1f} MB in BF16{}; `fathom model quantize` makes MXFP4 of its experts\n", folder.string(),
             static_cast<double>(written) * 1e-6,
             lora ? ", the adapters merged, and adapter/ in PEFT's layout" : "");
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto flags                      = std::make_shared<TrainFlags>();
  train::FineTuneOptions& options = flags->options;
  CLI::App& verb =
      *app.add_subcommand("train", "Fine-tune a model on a CPU, whole or by low-rank adapters (LoRA)");
  verb.add_option("data", flags->data, "Examples, a JSON object a line: docs/training.md says which")
      ->required();
  add_model_output_flags(verb, flags->target);
  verb.add_option("-m,--model", flags->model, "Folder of the model (default: the bundled one)");
  verb.add_option("--eval-data", flags->eval_data, "Examples whose loss is taken before and after");
  verb.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(whole_at_least(1))
      ->capture_default_str();
  verb.add_option("--batch-tokens", options.batch_tokens, "Tokens of a step, in whole examples")
      ->check(whole_at_least(1))
      ->capture_default_str();
  verb.add_option("--max-length", flags->max_length, "Examples are cut to so many tokens")
      ->check(whole_between(2, 131'072))
      ->capture_default_str();
  verb.add_option("--learning-rate", options.learning_rate, "Its highest; it falls to 0 by a cosine")
      ->check(between(1e-30, 1e30))
      ->capture_default_str();
  verb.add_option("--warmup-steps", options.warmup_steps, "Steps in which it rises")
      ->check(whole_at_least(0))
      ->capture_default_str();
  verb.add_option("--weight-decay", flags->weight_decay, "Of matrices (default: 0.1; of adapters 0)")
      ->check(at_least(0));
  verb.add_option("--max-grad-norm", options.max_grad_norm,
                  "Larger gradients are scaled down to it; 0: none are")
      ->check(at_least(0))
      ->capture_default_str();
  verb.add_option("--lora-rank", options.lora_rank,
                  "Train adapters of attention of this rank (default: all parameters)")
      ->check(whole_at_least(1));
  verb.add_option("--lora-alpha", options.lora_alpha, "Adapters count alpha / rank times")
      ->check(above_zero())
      ->capture_default_str();
  verb.add_option("--save-steps", flags->save_steps,
                  "Keep all that is needed to go on, after each so many steps (default: never)")
      ->check(whole_at_least(1));
  verb.add_flag("--resume", flags->resume,
                "Go on with the training that --save-steps left in the folder, to the same numbers");
  verb.add_option("--precision", flags->precision,
                  "Round the operands of linear layers, emulated: fp32 (default), bf16, fp8, mxfp8, nvfp4")
      ->check(CLI::IsMember(kPrecisions).description(""));
  verb.add_option("--threads", flags->threads, "Threads (default: one a core)")
      ->check(whole_between(1, 4096));
  verb.add_option("--seed", options.seed, "Order of the examples, and of what is drawn")
      ->capture_default_str();
  verb.callback([flags, &exit_code] {
    train_model(*flags);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
