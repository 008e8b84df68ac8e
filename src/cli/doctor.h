// `fathom doctor`: what this machine is, what it can do, how fast, and what a result from it can claim.
#pragma once

namespace CLI {
class App;
}

namespace fathom::cli {

// Adds the verb with its flags. Its callback runs it and sets `exit_code`.
void add_doctor(CLI::App& app, int& exit_code);

struct DoctorFlags {
  bool json    = false;  // one JSON object (schema fathom.doctor/1) instead of text
  bool refresh = false;  // measure the ceilings anew
  bool quick   = false;  // nothing that takes seconds: no ceilings that are not cached, nothing tried in a
                         // process of its own
};
// Prints to stdout.
int doctor(const DoctorFlags& flags);

}  // namespace fathom::cli
