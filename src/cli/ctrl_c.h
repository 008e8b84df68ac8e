// Work that can be cut short: it asks whether it was interrupted, and keeps what it has.
#pragma once

namespace fathom::cli {

// While it lives, the first Ctrl-C or SIGTERM only sets a flag; the second ends the program as usual.
class CtrlC {
 public:
  CtrlC();
  ~CtrlC();
  CtrlC(const CtrlC&)            = delete;
  CtrlC& operator=(const CtrlC&) = delete;

  static bool pressed();
};

}  // namespace fathom::cli
