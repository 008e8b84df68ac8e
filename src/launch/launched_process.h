// A process that `fathom launch` started: its lines, its end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::launch {

struct ProcessStart {
  std::string path;                      // of the program; without a slash it is looked for in PATH
  std::vector<std::string> arguments;    // argv, its first is the program's name
  std::vector<std::string> environment;  // "NAME=value"
  std::string directory;                 // to work in; empty: the launcher's
  bool with_input = false;               // a socket to its standard input; otherwise that is /dev/null
};

// A stream of a process, read line by line.
struct LineStream {
  int from = -1;  // -1: it has ended
  std::string pending;

  // Reads once what is there.
  void read_lines(const std::function<void(std::string_view)>& on_line);
};

struct LaunchedProcess {
  pid_t pid = 0;              // 0: it has ended
  int input = -1;             // where `with_input`
  LineStream streams[2];      // standard output and error
  std::optional<int> status;  // of waitpid

  void signal(int number) const;  // to it and to its own children
  bool reap();                    // true: it has ended since the last call
  // Passes on what lies in its streams and waits for nothing more.
  void drain(const std::function<void(int stream, std::string_view line)>& on_line);
};

// In a process group of its own, so that Ctrl-C at a terminal reaches it once, through the launcher, and so
// that its own children can be ended with it. It gets SIGTERM where the launcher dies. Throws SystemError.
LaunchedProcess start_process(ProcessStart start);

// All of the text, also where that takes several calls. False: nobody reads it any more.
bool write_all(int to, std::string_view text);

}  // namespace fathom::launch
