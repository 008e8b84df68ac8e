// fathom optimize: a language model writes variants of an experiment; the lab verifies and times each, and
// what came of it is in the next prompt.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/candidates.h"
#include "cli/ctrl_c.h"
#include "cli/kernel_prompt.h"
#include "cli/number_check.h"
#include "cli/result_table.h"
#include "cli/run_experiments.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "core/read_file.h"
#include "core/utc_time.h"
#include "http/client.h"
#include "lab/quantity.h"
#include "lab/registry.h"
#include "lab/variant_records.h"
#include "load/target.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct OptimizeFlags {
  ExperimentFlags experiments;
  std::string base_url, model, api_key, prompt, artifacts = "artifacts";
  bool insecure = false, print_prompt = false;
  int attempts = 8, threads = 1, max_tokens = 16384;
  double timeout_s = 1800;
  std::optional<double> temperature;
  std::optional<double> target;
};

// A chat endpoint of OpenAI's API.
class ChatModel {
 public:
  explicit ChatModel(const OptimizeFlags& flags) : flags_(flags) {
    const char* url      = std::getenv("OPENAI_BASE_URL");
    const char* key      = std::getenv("OPENAI_API_KEY");
    const std::string at = !flags.base_url.empty() ? flags.base_url : url ? url : "";
    if (at.empty()) throw UsageError("name a server of OpenAI's API: --base-url http://HOST:PORT/v1");
    key_             = !flags.api_key.empty() ? flags.api_key : key ? key : "";
    http::Url parsed = value_or_usage_error(http::parse_url(at));
    // As OpenAI's clients have it, the URL ends in /v1; the client's paths begin with it.
    if (parsed.prefix.ends_with("/v1")) parsed.prefix.resize(parsed.prefix.size() - 3);
    client_ = value_or_usage_error(
        http::Client::open(parsed, 1, flags.insecure ? http::Certificate::any : http::Certificate::verified));
    model_ = !flags.model.empty() ? flags.model : value_or_usage_error(load::first_model(*client_, key_));
  }

  const std::string& name() const { return model_; }

  struct Reply {
    std::string text;
    bool cut = false;  // at --max-tokens
  };
  Result<Reply> reply_to(const std::string& prompt) {
    json body = {{"model", model_},
                 {"messages", {{{"role", "user"}, {"content", prompt}}}},
                 {"max_completion_tokens", flags_.max_tokens}};
    if (flags_.temperature) body["temperature"] = *flags_.temperature;
    http::ClientRequest call{
        .method  = "POST",
        .target  = "/v1/chat/completions",
        .headers = {{"Content-Type", "application/json"}},
        .body    = body.dump(-1, ' ', false, json::error_handler_t::replace),
        .timeout = std::chrono::nanoseconds(static_cast<int64_t>(1e9 * flags_.timeout_s))};
    if (!key_.empty()) call.headers.push_back({"Authorization", "Bearer " + key_});
    const auto response = fetch_with_patience(call);
    if (!response) return response.error();
    if (response->status != 200)
      return Error{
          fmt::format("the server answered HTTP {}: {}", response->status, load::message_of(response->body))};
    const json answer     = json::parse(response->body, nullptr, false);
    const auto content_at = json::json_pointer("/choices/0/message/content");
    const auto finish_at  = json::json_pointer("/choices/0/finish_reason");
    if (!answer.is_object() || !answer.contains(content_at))
      return Error{"the server's answer has no choices[0].message.content"};
    const json& content = answer.at(content_at);
    return Reply{.text = content.is_string() ? content.get<std::string>() : "",  // null: it only reasoned
                 .cut  = answer.contains(finish_at) && answer.at(finish_at) == "length"};
  }

 private:
  // Repeats what may pass: no connection, time-outs, overload, faults of the server.
  Result<http::ClientResponse> fetch_with_patience(const http::ClientRequest& call) {
    for (const int pause_s : {1, 5, 20}) {
      auto response = client_->fetch(call);
      const bool may_pass =
          !response || response->status == 408 || response->status == 429 || response->status >= 500;
      if (!may_pass) return response;
      fmt::print(stderr, "fathom optimize: {}; again in {} s\n",
                 response ? fmt::format("HTTP {}: {}", response->status, load::message_of(response->body))
                          : response.error().message,
                 pause_s);
      std::this_thread::sleep_for(std::chrono::seconds(pause_s));
    }
    return client_->fetch(call);
  }

  const OptimizeFlags& flags_;
  std::unique_ptr<http::Client> client_;
  std::string key_, model_;
};

// Of a variant's results the one that decides: the first that is not right, else the slowest beside the
// baseline. Null: it has none.
const lab::VariantRecord* deciding(const lab::RunRecord& run, const std::string& id) {
  const lab::VariantRecord* found = nullptr;
  if (run.experiments.empty()) return found;
  for (const lab::PointRecord& point : run.experiments[0].points)
    for (const lab::VariantRecord& variant : point.variants) {
      if (variant.id != id) continue;
      if (variant.status != lab::Outcome::ok) return &variant;
      if (!found || (variant.ratio && found->ratio && variant.ratio->lo < found->ratio->lo)) found = &variant;
    }
  return found;
}

// The point of a quick run, or what -a says: the search and its verdict are about the same.
std::vector<lab::Axis> timed_axes(const lab::ExperimentInfo& experiment, const lab::Targets& targets) {
  if (!targets.axes.empty()) return targets.axes;
  lab::MeasureOptions quick;
  quick.run.quick = true;
  std::vector<lab::Axis> axes;
  const std::vector<lab::Point> points = lab::timed_points(experiment, quick);
  for (const auto& [name, value] : points.front().parameters()) axes.push_back({name, {value}});
  return axes;
}

std::string measured_text(const lab::VariantRecord& variant) {
  std::string text = variant.time_ns ? lab::time_text(variant.time_ns->median) : "not timed";
  if (variant.ratio)
    text +=
        fmt::format(", {} the baseline's speed {}", lab::ratio_text(variant.ratio->median),
                    lab::ratio_interval_text(variant.ratio->median, variant.ratio->lo, variant.ratio->hi));
  if (variant.share_of_limit)
    text += fmt::format(", {} of the limit", lab::share_text(*variant.share_of_limit));
  return text;
}

// Of the compiler's messages the first error.
std::string in_a_line(const std::string& outcome) {
  const size_t error = outcome.find(" error: ");
  const size_t begin = error == std::string::npos ? 0 : error + 1;
  return outcome.substr(begin, outcome.find('\n', begin) - begin);
}

// A quick run has few rounds. Where a machine's speed changes while they last, neighbouring rounds are alike,
// and there may be no interval for a ratio.
constexpr int kMostTries = 3;

struct Attempt {
  Tried tried;
  std::string status;  // right | wrong | crashed | ... | no code | not compiled | not measured
  double ratio = 0;    // lower end of its interval; 0: not right, or not measured
};

class Search {
 public:
  Search(const OptimizeFlags& flags, lab::Targets targets)
      : flags_(flags), targets_(std::move(targets)), root_(candidate_source_tree()) {
    if (targets_.selections.size() != 1 || !targets_.planned.empty() ||
        !targets_.selections[0].variants.empty())
      throw UsageError("optimize takes one whole experiment, e.g. `fathom optimize ch09:matmul_cpu`");
    experiment_ = lab::find_experiment(targets_.selections[0].experiment);
    if (const Status takes = lab::takes_candidates(*experiment_); !takes)
      throw UsageError(takes.error().message);
    for (const lab::VariantInfo& variant : experiment_->variants) declared_.push_back(variant.id);
    targets_.axes = timed_axes(*experiment_, targets_);
  }

  std::string first_prompt() const { return prompt_text(task(""), nullptr, nullptr); }

  int run() {
    ChatModel model(flags_);
    folder_ = make_run_folder(flags_.artifacts, utc_now(), "optimize");
    fmt::print("{} writes variants of {}; each is code that runs here as you, without a sandbox.\n\n",
               model.name(), experiment_->id);
    try_compiler();
    const lab::RunRecord known = measure(declared_, {}, true);
    const KernelTask asked     = task(variants_text(known));
    fmt::print("{}\n", asked.measured);
    bool answered = true;
    for (int i = 1; i <= flags_.attempts && answered && !reached() && !CtrlC::pressed(); ++i)
      answered = one_attempt(model, asked, i);
    if (best_) std::filesystem::copy_file(best_file_, folder_ + "/best.cpp");
    if (CtrlC::pressed()) return ended_early();
    if (best_) return confirm();
    return answered ? nothing_right() : ended_early();
  }

 private:
  KernelTask task(std::string measured) const {
    return {.instructions = flags_.prompt.empty() ? default_instructions()
                                                  : value_or_usage_error(read_file(flags_.prompt)),
            .experiment   = experiment_text(*experiment_, targets_.axes),
            .machine      = machine_text(flags_.threads),
            .files        = files_for(root_, *experiment_, declared_),
            .measured     = std::move(measured)};
  }

  std::string variants_text(const lab::RunRecord& run) const {
    std::string text;
    for (const std::string& id : declared_)
      if (const lab::VariantRecord* variant = deciding(run, id); variant && variant->time_ns)
        text += fmt::format("{} ({}): {}\n", id, variant->threads == 1 ? "1 thread" : "all threads",
                            measured_text(*variant));
    return text;
  }

  // A machine without a compiler must not look like a model that cannot write.
  void try_compiler() const {
    const std::string file = folder_ + "/try_compiler.cpp";
    write_file_atomically(file, "#include \"lab/candidate.h\"\n");
    const Status works = lab::compile_candidate(file, root_, root_ + "/" + experiment_->folder, file + ".so");
    for (const char* made : {"", ".so", ".so.log"}) std::filesystem::remove(file + made);
    if (!works) throw UsageError(works.error().message);
  }

  // Variants of the experiment, with `candidates` among them. Again, a few times, where `decisive` is right
  // and has no ratio.
  lab::RunRecord measure(std::vector<std::string> variants, const CandidateFlags& candidates, bool quick,
                         const std::string& decisive = "") {
    ExperimentFlags experiments    = flags_.experiments;
    experiments.options.quick      = quick;
    lab::Targets targets           = targets_;
    targets.selections[0].variants = std::move(variants);
    const Candidates compiled(candidates, targets, experiments.options);
    for (int tries = 1;; ++tries) {
      lab::RunRecord run             = run_experiments(experiments, targets, "optimize", program_arguments(),
                                                       [](const lab::RunRecord&) {});
      const lab::VariantRecord* seen = deciding(run, decisive);
      const bool without_ratio       = seen && seen->status == lab::Outcome::ok && !seen->ratio;
      if (!without_ratio || tries == kMostTries || CtrlC::pressed()) return run;
    }
  }

  // Of a right variant without a ratio.
  std::string why_not_compared(const lab::RunRecord& run) const {
    if (CtrlC::pressed()) return "interrupted";
    const lab::VariantRecord* baseline = deciding(run, declared_.front());
    if (!baseline || baseline->status == lab::Outcome::ok)
      return "its rounds were too few, or too much alike, for an interval of the ratio: is the machine busy?";
    return fmt::format("its baseline was not measured, {}: {}", to_string(baseline->status),
                       baseline->detail);
  }

  // False: the model did not answer.
  bool one_attempt(ChatModel& model, const KernelTask& asked, int number) {
    const std::string name = fmt::format("attempt_{:02}", number), place = folder_ + "/" + name;
    const Tried* last        = attempts_.empty() ? nullptr : &attempts_.back()->tried;
    const std::string prompt = prompt_text(asked, best_ ? &best_->tried : nullptr, last);
    write_file_atomically(place + ".prompt.md", prompt);
    const auto reply = model.reply_to(prompt);
    if (!reply) {
      fmt::print(stderr, "fathom optimize: {}\n", reply.error().message);
      return false;
    }
    write_file_atomically(place + ".reply.md", reply->text);
    attempts_.push_back(std::make_unique<Attempt>());
    Attempt& attempt = *attempts_.back();
    const auto code  = code_of(reply->text);
    if (!code) {
      attempt.status        = "no code";
      attempt.tried.outcome = "The reply had no ```cpp block with FATHOM_CANDIDATE in it.";
      if (reply->cut)
        attempt.tried.outcome += fmt::format(" It was cut off after {} tokens.", flags_.max_tokens);
    } else {
      attempt.tried.source = *code;
      write_file_atomically(place + ".cpp", *code);
      judge(attempt, name, place + ".cpp");
    }
    if (attempt.ratio > 0 && (!best_ || attempt.ratio > best_->ratio)) {
      best_      = &attempt;
      best_file_ = place + ".cpp";
    }
    fmt::print(
        "{}", wrapped(attempt.status + ": " + in_a_line(attempt.tried.outcome), text_columns(), name + "  "));

    write_summary(model.name());
    return true;
  }

  void judge(Attempt& attempt, const std::string& id, const std::string& file) {
    lab::RunRecord run;
    try {
      run = measure({declared_.front()}, {.files = {file}, .threads = flags_.threads}, true, id);
    } catch (const UsageError& error) {
      attempt.status        = "not compiled";
      attempt.tried.outcome = error.what();
      return;
    }
    const lab::VariantRecord* seen = deciding(run, id);
    if (!seen) {
      attempt.status = "not measured";
      attempt.tried.outcome =
          run.experiments.empty() ? "interrupted" : "nothing was measured: " + run.experiments[0].detail;
      return;
    }
    attempt.status = seen->status == lab::Outcome::ok ? "right" : std::string(to_string(seen->status));
    if (seen->ratio) {
      attempt.ratio         = seen->ratio->lo;
      attempt.tried.outcome = measured_text(*seen);
    } else if (seen->status == lab::Outcome::ok) {
      attempt.status        = "not measured";
      attempt.tried.outcome = why_not_compared(run);
    } else {
      attempt.tried.outcome = seen->caught_by
                                  ? fmt::format("caught by {}: {}", *seen->caught_by, seen->detail)
                              : seen->invalid_reason ? *seen->invalid_reason
                                                     : seen->detail;
    }
  }

  bool reached() const { return best_ && flags_.target && best_->ratio >= *flags_.target; }

  void write_summary(const std::string& model) const {
    json attempts = json::array();
    for (const auto& attempt : attempts_)
      attempts.push_back({{"status", attempt->status},
                          {"outcome", attempt->tried.outcome},
                          {"ratio_lo", attempt->ratio > 0 ? json(attempt->ratio) : json(nullptr)}});
    write_file_atomically(
        folder_ + "/attempts.json",
        json{{"schema", "fathom.optimize/1"},
             {"experiment", experiment_->id},
             {"model", model},
             {"best", best_ ? json(std::filesystem::path(best_file_).filename().string()) : json(nullptr)},
             {"attempts", attempts}}
                .dump(2, ' ', false, json::error_handler_t::replace) +
            "\n");
  }

  // The best of several noisy times is too good on average: it is measured again, beside all variants.
  int confirm() {
    const lab::RunRecord run =
        measure(declared_, {.files = {folder_ + "/best.cpp"}, .threads = flags_.threads}, false, "best");
    write_results(folder_, run);
    write_run(flags_.artifacts, folder_, run);
    fmt::print("\n{}\n", result_text(run));
    print_report_path(folder_);
    const int code                 = run_exit_code(run);
    const lab::VariantRecord* best = deciding(run, "best");
    if (code != kExitOk || !best || !best->ratio) return code == kExitOk ? kExitInvalid : code;
    return flags_.target && best->ratio->lo < *flags_.target ? kExitRegression : kExitOk;
  }

  int nothing_right() const {
    fmt::print("\nNo candidate was right and measured. Prompts, replies and files: {}\n", folder_);
    return kExitRegression;
  }

  // By Ctrl-C, or by a server that does not answer.
  int ended_early() const {
    fmt::print("\nEnded early, and nothing was measured again. Prompts, replies{} are in {}\n",
               best_ ? ", candidates and the best one so far, best.cpp," : " and candidates", folder_);
    return kExitCrash;
  }

  const OptimizeFlags& flags_;
  lab::Targets targets_;
  std::string root_, folder_;
  const lab::ExperimentInfo* experiment_ = nullptr;
  std::vector<std::string> declared_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  const Attempt* best_ = nullptr;
  std::string best_file_;
};

int optimize(const OptimizeFlags& flags) {
  Search search(flags, chosen_targets(flags.experiments.selection));
  if (!flags.print_prompt) return search.run();
  fmt::print("{}", search.first_prompt());
  return kExitOk;
}

}  // namespace

void add_optimize(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<OptimizeFlags>();
  CLI::App& verb = *app.add_subcommand(
      "optimize", "A language model writes variants of an experiment; each is verified and timed");
  add_experiment_flags(verb, flags->experiments);
  verb.add_option("--base-url", flags->base_url,
                  "Of a server with OpenAI's API, http://HOST:PORT/v1 or https (default: $OPENAI_BASE_URL)");
  verb.add_option("--model", flags->model, "Its name (default: the first of /v1/models)");
  verb.add_option("--api-key", flags->api_key, "Sent as Bearer token (default: $OPENAI_API_KEY)");
  verb.add_flag("--insecure", flags->insecure, "https: take any certificate (else SSL_CERT_FILE adds one)");
  verb.add_option("--temperature", flags->temperature, "Of the model (default: the server's)")
      ->check(at_least(0));
  verb.add_option("--max-tokens", flags->max_tokens, "At most so many tokens a reply, reasoning included")
      ->check(whole_at_least(1))
      ->capture_default_str();
  verb.add_option("--timeout", flags->timeout_s, "Seconds that a reply may take")
      ->check(above_zero())
      ->capture_default_str();
  verb.add_option("-n,--attempts", flags->attempts, "Candidates to ask for")
      ->check(whole_at_least(1))
      ->capture_default_str();
  verb.add_option("--target", flags->target,
                  "Stop at a candidate that is this many times as fast as the baseline; fail without one")
      ->check(above_zero());
  verb.add_option("--candidate-threads", flags->threads, "Threads of each candidate; 0: every host thread")
      ->check(whole_at_least(0))
      ->capture_default_str();
  verb.add_option("--prompt", flags->prompt, "A file in place of the built-in instructions");
  verb.add_flag("--print-prompt", flags->print_prompt,
                "Print the first prompt, without what is measured, and ask nobody");
  add_artifacts_flag(verb, flags->artifacts);
  verb.callback([flags, &exit_code] { exit_code = optimize(*flags); });
}

}  // namespace fathom::cli
