// fathom book: builds The Algebra of Speed and opens it. With --serve its pages can run their experiments.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/number_check.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/source_tree.h"

namespace fathom::cli {
namespace {

struct BookFlags {
  std::string source_dir;
  int port   = 8024;
  bool serve = false, open = true;
};

// tools/build_book or tools/serve_book in this process's place, so that Ctrl-C and the exit code are theirs.
void become_tool(const BookFlags& flags) {
  namespace fs    = std::filesystem;
  const auto root = flags.source_dir.empty() ? find_source_tree() : std::optional(flags.source_dir);
  if (!root)
    throw UsageError(
        "there is no source tree around this folder, and the book is built from it: run this in a clone of "
        "Fathom, or name that with --source-dir");
  std::vector<std::string> command{*root + (flags.serve ? "/tools/serve_book" : "/tools/build_book")};
  if (flags.open) command.emplace_back("--open");
  if (flags.serve) command.insert(command.end(), {"--port", std::to_string(flags.port)});
  std::error_code unknown;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", unknown); !unknown)
    setenv("FATHOM_PROGRAM", self.c_str(), 1);  // runs the experiments, and says which records are stale
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv.front(), argv.data());
  throw UsageError(fmt::format("cannot start {}: {}; is {} a clone of Fathom?", command.front(),
                               std::strerror(errno), *root));
}

}  // namespace

void add_book(CLI::App& app, int&) {
  auto flags     = std::make_shared<BookFlags>();
  CLI::App& verb = *app.add_subcommand("book", "Build the book, The Algebra of Speed, and open it");
  verb.add_flag("--open,!--no-open", flags->open,
                "Show it in a browser, where there is a display (default: yes)");
  verb.add_flag("--serve", flags->serve,
                "Serve it to this machine alone (127.0.0.1), until Ctrl-C: its pages get buttons that run "
                "their experiments here and draw the figures again");
  verb.add_option("--port", flags->port, "Port of --serve; 0: any that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option("--source-dir", flags->source_dir, "The source tree (default: the one around this folder)");
  verb.footer(
      "The book needs the Debian packages of packages-book.txt: tools/install_packages packages-book.txt.\n"
      "A figure shows reference machines, and before them yours after `fathom run <experiment> --book`,\n"
      "which keeps its records under $XDG_DATA_HOME/fathom/results (default: ~/.local/share).");
  verb.callback([flags] { become_tool(*flags); });
}

}  // namespace fathom::cli
