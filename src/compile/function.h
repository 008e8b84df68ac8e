// A program as something to call: captured and compiled at the first call, again where a guard fails.
//
//   Function f("norm", [](Program& p, const std::vector<Tensor>& in) {
//     p.output("y", rms_norm(in[0], in[1], 1e-5));
//   });
//   f.run({x, weight}, {y}, pool);
//
// Each compiled entry is guarded: dtypes, ranks, extents, and whether an input is row-major. An extent is a
// constant of its entry until it has had a second value; then it is a symbol, and one entry serves all values
// from 2 on (0 and 1 have entries of their own). Extents that vary and are equal are one symbol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compile/executable.h"
#include "compile/tensor.h"

namespace fathom::compile {

struct Array {
  DType dtype = DType::fp32;
  void* data  = nullptr;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides = {};  // in elements; empty: row-major

  bool row_major() const;
};

using Trace = std::function<void(Program& program, const std::vector<Tensor>& inputs)>;

struct Options {
  bool fuse          = true;  // false: eager, a launch for each kernel
  bool symbols       = true;  // false: extents stay constants, and every shape is compiled
  size_t max_entries = 8;     // one more is an error that names the guards
};

class Function {
 public:
  struct Entry {
    std::string because;          // the first guard of the entry before it that failed
    std::vector<bool> row_major;  // of each input; others are packed before a run
    std::unique_ptr<Executable> executable;
    int64_t hits                          = 0;
    std::vector<Buffer<std::byte>> packed = {};
  };

  // Captured anew for each entry.
  Function(std::string name, Trace trace, Options options = {});
  // A graph with symbols of its own: what it does not admit is an error.
  explicit Function(Graph graph, Options options = {});

  // Throws ContractError where no entry can serve the arrays, GraphBreak where the trace breaks. Outputs are
  // row-major and overlap nothing.
  void run(const std::vector<Array>& inputs, const std::vector<Array>& outputs, ThreadPool& pool);

  const std::string& name() const { return name_; }
  const std::vector<Entry>& entries() const { return entries_; }
  int64_t calls() const { return calls_; }

 private:
  Entry& entry_for(const std::vector<Array>& inputs, std::vector<int64_t>& symbols);
  Graph captured(const std::vector<Array>& inputs) const;
  Graph specialised(const std::vector<Array>& inputs) const;
  void note_values(const std::vector<Array>& inputs);

  std::string name_;
  Trace trace_;
  Graph graph_;  // where there is no trace
  Options options_;
  std::vector<Entry> entries_;
  size_t last_   = 0;  // the entry of the last call
  int64_t calls_ = 0;
  // Of each input and axis: the first value, and whether there was another.
  std::vector<std::vector<std::pair<int64_t, bool>>> seen_;
};

// Every break on the trace's way for inputs of these dtypes and extents, as messages with place, cause and
// cure; none: it is one graph. A value that the host reads is taken for 1, so that branches on others are not
// seen.
std::vector<std::string> breaks_of(const std::string& name, const Trace& trace,
                                   const std::vector<Array>& inputs);

// "x.extent(0) == 8", one for each condition of the entry.
std::vector<std::string> guards(const Function::Entry& entry);

}  // namespace fathom::compile
