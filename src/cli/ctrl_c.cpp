#include "cli/ctrl_c.h"

#include <csignal>

namespace fathom::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

CtrlC::CtrlC() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags   = SA_RESETHAND;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

CtrlC::~CtrlC() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

bool CtrlC::pressed() { return interrupted != 0; }

}  // namespace fathom::cli
