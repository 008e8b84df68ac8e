// fathom chat: a conversation. Ctrl-C stops an answer, Ctrl-D or /exit ends the program.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/offline_inference.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/expect.h"

namespace fathom::cli {
namespace {

constexpr std::string_view kHelp =
    "/new forgets the conversation, /exit or Ctrl-D ends; Ctrl-C stops an answer.";

struct ChatFlags {
  OfflineInferenceFlags inference;
  bool show_analysis = false;
};

// While it lives, Ctrl-C does not end the program but signals an eventfd, whichever thread receives the
// signal, so that poll() can wait for it and for input together.
class Interrupts {
 public:
  Interrupts() {
    event_                   = FATHOM_SYSTEM(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    struct sigaction handler = {};
    handler.sa_handler       = [](int) {
      const int error    = errno;
      const uint64_t one = 1;
      if (::write(event_, &one, sizeof one) == -1)
        errno = error;  // the counter is full, so an interrupt is pending already
    };
    FATHOM_SYSTEM(sigaction(SIGINT, &handler, &before_));
  }
  ~Interrupts() {
    sigaction(SIGINT, &before_, nullptr);
    ::close(event_);
  }
  Interrupts(const Interrupts&)            = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int event() const { return event_; }  // readable after Ctrl-C
  bool take() {                         // whether Ctrl-C came since the last call
    uint64_t count = 0;
    return ::read(event_, &count, sizeof count) == sizeof count;
  }

 private:
  static inline int event_ = -1;  // static, because the signal handler needs it
  struct sigaction before_ = {};
};

// Reads lines of standard input and notices Ctrl-C while it waits, which std::getline would not.
class LineReader {
 public:
  enum class Event { line, end, interrupted };

  Event next(std::string& line, Interrupts* interrupts) {
    while (true) {
      if (const size_t end = read_.find('\n'); end != std::string::npos) {
        line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return Event::line;
      }
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts ? interrupts->event() : -1, POLLIN, 0}};
      if (::poll(sources, 2, -1) == -1 && errno != EINTR)
        system_failed("poll(standard input)", errno, __FILE__, __LINE__);
      if (interrupts && interrupts->take()) {
        read_.clear();
        return Event::interrupted;
      }
      if (sources[0].revents == 0) continue;
      char bytes[4096];
      const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (count == -1 && errno == EINTR) continue;
      if (count == -1) system_failed("read(standard input)", errno, __FILE__, __LINE__);
      if (count == 0) {
        line = std::move(read_);
        read_.clear();
        return line.empty() ? Event::end : Event::line;
      }
      read_.append(bytes, static_cast<size_t>(count));
    }
  }

 private:
  std::string read_;
};

// Prints the answer as it streams. Analysis appears only with --show-analysis, dimmed on a terminal.
class AnswerPrinter {
 public:
  AnswerPrinter(bool show_analysis, bool colour) : show_analysis_(show_analysis), colour_(colour) {}

  void print(const StreamDecoder::Piece& piece) {
    const bool final = piece.channel == "final";
    if (piece.text.empty() || (!final && !show_analysis_)) return;
    if (final == dim_ || !begun_) {
      if (begun_) end();
      if (!final && colour_) fmt::print("\x1b[2m");
      begun_ = true;
      dim_   = !final;
    }
    fmt::print("{}", piece.text);
    std::fflush(stdout);
  }

  void end() {
    if (begun_ && dim_ && colour_) fmt::print("\x1b[22m");
    fmt::print("\n");
    std::fflush(stdout);
    begun_ = dim_ = false;
  }

 private:
  bool show_analysis_, colour_;
  bool begun_ = false, dim_ = false;
};

class Conversation {
 public:
  // `checkpoint` must outlive it.
  Conversation(const ChatFlags& flags, const model::Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        tokenizer_(tokenizer_of(checkpoint)),
        tokens_(harmony_of(checkpoint)),
        offline_(flags.inference, checkpoint),
        show_analysis_(flags.show_analysis),
        messages_{system_message(checkpoint, flags.inference)} {}

  void forget() { messages_.resize(1); }

  // Sends the question, prints the answer and appends both to the conversation. `interrupts` is null where
  // Ctrl-C ends the program. Throws UsageError if the conversation no longer fits into the context.
  void ask(const std::string& question, Interrupts* interrupts) {
    const size_t before = messages_.size();
    messages_.push_back({.role = "user", .content = question});
    StreamDecoder reader(checkpoint_, true);
    AnswerPrinter printer(show_analysis_, isatty(STDOUT_FILENO));
    Answer answer;
    try {
      answer = offline_.answer(
          value_or_usage_error(model::render_harmony(tokenizer_, tokens_, messages_)),
          [&](model::TokenId id) { printer.print(reader.add(id)); },
          [&] { return interrupts && interrupts->take(); });
    } catch (const UsageError&) {
      messages_.resize(before);
      throw;
    }
    printer.print(reader.finish());
    printer.end();
    if (answer.finish == engine::FinishReason::cancelled) fmt::print(stderr, "stopped; ");
    if (answer.finish == engine::FinishReason::length)
      fmt::print(stderr, "cut short, --max-tokens or the context is at its end; ");
    fmt::print(stderr, "{}\n", offline_.speed_text(answer));
    // Drop a turn without a final message.
    if (reader.final_text().empty())
      messages_.resize(before);
    else
      messages_.insert(messages_.end(), reader.messages().begin(), reader.messages().end());
  }

 private:
  const model::Checkpoint& checkpoint_;
  const model::Tokenizer& tokenizer_;
  const model::HarmonyTokens& tokens_;
  OfflineEngine offline_;
  bool show_analysis_;
  std::vector<model::HarmonyMessage> messages_;  // begins with the system message
};

int chat(const ChatFlags& flags) {
  const auto checkpoint = open_checkpoint(flags.inference);
  Conversation conversation(flags, checkpoint);
  const bool terminal = isatty(STDIN_FILENO);
  std::optional<Interrupts> interrupts;
  if (terminal) {
    interrupts.emplace();
    fmt::print("{}\n", kHelp);
  }
  Interrupts* const ctrl_c = interrupts ? &*interrupts : nullptr;
  LineReader lines;
  std::string line;
  int exit_code     = kExitOk;
  bool asked_to_end = false;
  while (true) {
    if (terminal) fmt::print("> ");
    std::fflush(stdout);
    const auto event = lines.next(line, ctrl_c);
    if (event == LineReader::Event::interrupted && !asked_to_end) {
      fmt::print("\nOnce more to end.\n");
      asked_to_end = true;
      continue;
    }
    if (event != LineReader::Event::line) break;
    asked_to_end     = false;
    const auto first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    if (first == std::string::npos) continue;
    line = line.substr(first, last - first + 1);
    if (line == "/exit") return exit_code;
    if (line == "/new") {
      conversation.forget();
      continue;
    }
    if (line[0] == '/') {
      fmt::print(stderr, "{}\n", kHelp);
      continue;
    }
    try {
      conversation.ask(line, ctrl_c);
    } catch (const UsageError& error) {
      fmt::print(stderr, "{}; /new starts another conversation\n", error.what());
      if (!terminal) exit_code = kExitUsage;
    }
    if (ctrl_c) ctrl_c->take();  // discard a Ctrl-C that came after the answer's end
  }
  if (terminal) fmt::print("\n");
  return exit_code;
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ChatFlags>();
  CLI::App& verb = *app.add_subcommand("chat", "A conversation with a model; in a pipe, a question a line");
  add_offline_inference_flags(verb, flags->inference);
  verb.add_flag("--show-analysis", flags->show_analysis, "Show what the model writes before its answer");
  verb.callback([flags, &exit_code] { exit_code = chat(*flags); });
}

}  // namespace fathom::cli
