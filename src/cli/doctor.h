// `fathom doctor`: what this machine is, what it can do, how fast, and what a result from it can claim.
#pragma once

namespace CLI {
class App;
}

namespace fathom::cli {

// Adds the verb with its flags. Its callback runs it and sets `exit_code`.
void add_doctor(CLI::App& app, int& exit_code);

// Prints to stdout: text, or one JSON object (schema fathom.doctor/1). `refresh`: measure the ceilings anew.
int doctor(bool json, bool refresh);

}  // namespace fathom::cli
